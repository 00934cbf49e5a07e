/* A small libnvidia-ml.so.1 for tests; the real nvidia-ml-py loads it.

   Everything is read anew at each call from the folder $FAKE_NVML_DIR:
     state            lines "key value"; a value may be a comma list, of which each call of that key takes the next
                      item and the last one stays
     procs/GPU_PID    holds bytes: that process "uses" so much of that card, until it is gone
   Keys: count, driver, cuda, and for card N: N.uuid, N.name, N.total, N.used, N.reserved, N.util, N.temp, N.power,
   N.cc. Faults: error.FUNCTION CODE, error.FUNCTION.N CODE, sleep_ms.FUNCTION MS; pid_offset (a container's view),
   no_process_memory 1 (Windows' driver model). */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))
#define TEXT 256
#define MAX_PROCESSES 32
#define SUCCESS 0
#define UNINITIALIZED 1
#define INVALID_ARGUMENT 2
#define NOT_FOUND 6
#define INSUFFICIENT_SIZE 7
#define VERSION_MISMATCH 25
#define NOT_AVAILABLE (~0ULL)

typedef unsigned long long u64;
typedef unsigned int u32;

static int opened;
static struct { char key[TEXT]; int calls; } counters[128];

static const char *folder(void) {
    const char *path = getenv("FAKE_NVML_DIR");
    return path ? path : "/nonexistent";
}

static int calls_of(const char *key) {
    for (int i = 0; i < 128; i++) {
        if (!counters[i].key[0]) snprintf(counters[i].key, TEXT, "%s", key);
        if (!strcmp(counters[i].key, key)) return counters[i].calls++;
    }
    return 0;
}

static int look(const char *key, char *out) {
    char path[512], line[1024], found[TEXT] = "";
    int there = 0;
    snprintf(path, sizeof path, "%s/state", folder());
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    while (fgets(line, sizeof line, file)) {
        char *value = strchr(line, ' ');
        if (!value) continue;
        *value++ = 0;
        value[strcspn(value, "\n")] = 0;
        if (!strcmp(line, key)) { snprintf(found, TEXT, "%.250s", value); there = 1; }
    }
    fclose(file);
    if (!there) return 0;
    char *item = found;
    if (strchr(found, ','))
        for (int skip = calls_of(key); skip > 0 && strchr(item, ','); skip--) item = strchr(item, ',') + 1;
    item[strcspn(item, ",")] = 0;
    snprintf(out, TEXT, "%s", item);
    return 1;
}

static u64 number(const char *key, u64 otherwise) {
    char text[TEXT];
    return look(key, text) ? strtoull(text, NULL, 0) : otherwise;
}

static u64 of_card(int card, const char *key, u64 otherwise) {
    char full[TEXT];
    snprintf(full, TEXT, "%d.%s", card, key);
    return number(full, otherwise);
}

static int fault(const char *function, int card) {
    char key[TEXT];
    snprintf(key, TEXT, "sleep_ms.%s", function);
    usleep(1000 * number(key, 0));
    snprintf(key, TEXT, "error.%s", function);
    int code = (int)number(key, 0);
    snprintf(key, TEXT, "error.%s.%d", function, card);
    if (!code && card >= 0) code = (int)number(key, 0);
    if (!code && !opened && strcmp(function, "nvmlInitWithFlags")) code = UNINITIALIZED;
    return code;
}

#define CARD(handle) ((int)((long)(handle) - 0x1000))
#define ENTER(card) do { int code = fault(__func__, card); if (code) return code; } while (0)

static int answer(const char *key, const char *otherwise, char *out, u32 size) {
    char text[TEXT];
    if (!look(key, text)) snprintf(text, TEXT, "%s", otherwise);
    if (strlen(text) + 1 > size) return INSUFFICIENT_SIZE;
    strcpy(out, text);
    return SUCCESS;
}

static int answer_card(int card, const char *key, const char *otherwise, char *out, u32 size) {
    char full[TEXT];
    snprintf(full, TEXT, "%d.%s", card, key);
    return answer(full, otherwise, out, size);
}

static int processes_on(int card, u32 *pids, u64 *bytes) {
    char path[512], file_path[1024];
    int count = 0, on;
    long pid;
    snprintf(path, sizeof path, "%s/procs", folder());
    DIR *entries = opendir(path);
    if (!entries) return 0;
    for (struct dirent *entry; (entry = readdir(entries)) && count < MAX_PROCESSES;) {
        if (sscanf(entry->d_name, "%d_%ld", &on, &pid) != 2 || on != card || kill((pid_t)pid, 0)) continue;
        snprintf(file_path, sizeof file_path, "%s/%s", path, entry->d_name);
        FILE *file = fopen(file_path, "r");
        if (!file) continue;
        if (fscanf(file, "%llu", &bytes[count]) == 1) pids[count++] = (u32)pid;
        fclose(file);
    }
    closedir(entries);
    return count;
}

static u64 used_on(int card) {
    u32 pids[MAX_PROCESSES];
    u64 bytes[MAX_PROCESSES], sum = of_card(card, "used", 0);
    for (int left = processes_on(card, pids, bytes); left > 0; left--) sum += bytes[left - 1];
    return sum;
}

API int nvmlInitWithFlags(u32 flags) { (void)flags; ENTER(-1); opened = 1; return SUCCESS; }
API int nvmlShutdown(void) { ENTER(-1); opened = 0; return SUCCESS; }
API const char *nvmlErrorString(int code) { (void)code; return "an error of the fake"; }
API int nvmlDeviceGetCount_v2(u32 *count) { ENTER(-1); *count = (u32)number("count", 0); return SUCCESS; }
API int nvmlSystemGetDriverVersion(char *out, u32 size) { ENTER(-1); return answer("driver", "999.01", out, size); }
API int nvmlSystemGetCudaDriverVersion_v2(int *out) { ENTER(-1); *out = (int)number("cuda", 12080); return SUCCESS; }

API int nvmlDeviceGetHandleByIndex_v2(u32 index, void **handle) {
    ENTER((int)index);
    if (index >= number("count", 0)) return INVALID_ARGUMENT;
    *handle = (void *)(0x1000L + index);
    return SUCCESS;
}

API int nvmlDeviceGetUUID(void *handle, char *out, u32 size) {
    char otherwise[TEXT];
    ENTER(CARD(handle));
    snprintf(otherwise, TEXT, "GPU-fake-%d", CARD(handle));
    return answer_card(CARD(handle), "uuid", otherwise, out, size);
}

API int nvmlDeviceGetHandleByUUID(const char *uuid, void **handle) {
    char own[TEXT];
    ENTER(-1);
    for (u32 index = 0; index < number("count", 0); index++) {
        *handle = (void *)(0x1000L + index);
        if (!nvmlDeviceGetUUID(*handle, own, TEXT) && !strcmp(own, uuid)) return SUCCESS;
    }
    return NOT_FOUND;
}

API int nvmlDeviceGetName(void *handle, char *out, u32 size) {
    ENTER(CARD(handle));
    return answer_card(CARD(handle), "name", "Fake card", out, size);
}

API int nvmlDeviceGetCudaComputeCapability(void *handle, int *major, int *minor) {
    ENTER(CARD(handle));
    int both = (int)of_card(CARD(handle), "cc", 90);
    *major = both / 10;
    *minor = both % 10;
    return SUCCESS;
}

typedef struct { u64 total, free, used; } Memory;
typedef struct { u32 version; u64 total, reserved, free, used; } Memory2;

API int nvmlDeviceGetMemoryInfo(void *handle, Memory *memory) {
    ENTER(CARD(handle));
    memory->total = of_card(CARD(handle), "total", 0);
    memory->used = used_on(CARD(handle)) + of_card(CARD(handle), "reserved", 0);
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

API int nvmlDeviceGetMemoryInfo_v2(void *handle, Memory2 *memory) {
    ENTER(CARD(handle));
    if (memory->version != (sizeof *memory | 2u << 24)) return VERSION_MISMATCH;
    memory->total = of_card(CARD(handle), "total", 0);
    memory->reserved = of_card(CARD(handle), "reserved", 0);
    memory->used = used_on(CARD(handle));
    memory->free = memory->total - memory->used - memory->reserved;
    return SUCCESS;
}

API int nvmlDeviceGetUtilizationRates(void *handle, u32 *rates) {
    ENTER(CARD(handle));
    rates[0] = rates[1] = (u32)of_card(CARD(handle), "util", 0);
    return SUCCESS;
}

API int nvmlDeviceGetTemperature(void *handle, u32 sensor, u32 *out) {
    (void)sensor;
    ENTER(CARD(handle));
    *out = (u32)of_card(CARD(handle), "temp", 40);
    return SUCCESS;
}

API int nvmlDeviceGetPowerUsage(void *handle, u32 *out) {
    ENTER(CARD(handle));
    *out = (u32)of_card(CARD(handle), "power", 30000);
    return SUCCESS;
}

typedef struct { u32 pid; u64 used; u32 instance, compute_instance; } Process;

API int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, u32 *count, Process *out) {
    u32 pids[MAX_PROCESSES];
    u64 bytes[MAX_PROCESSES];
    ENTER(CARD(handle));
    int found = processes_on(CARD(handle), pids, bytes);
    if (found && (!out || (int)*count < found)) { *count = (u32)found; return INSUFFICIENT_SIZE; }
    for (int i = 0; i < found; i++) {
        out[i].pid = pids[i] + (u32)number("pid_offset", 0);
        out[i].used = number("no_process_memory", 0) ? NOT_AVAILABLE : bytes[i];
        out[i].instance = out[i].compute_instance = ~0u;
    }
    *count = (u32)found;
    return SUCCESS;
}

API int nvmlDeviceGetGraphicsRunningProcesses_v3(void *handle, u32 *count, Process *out) {
    (void)out;
    ENTER(CARD(handle));
    *count = 0;
    return SUCCESS;
}
