"""What each finding means and what to do about it, as (meaning, remedy) by the code's name; `codes` gives them types."""

from __future__ import annotations

from typing import Final

TEXTS: Final[dict[str, tuple[str, str]]] = {
    "SET_NOT_ON_NODE": (
        "No scan found this exact set on the node; a set on another node does not count.",
        "Scan the folder on this node: `modelforge artifact scan PATH --node NODE`.",
    ),
    "NODE_OFFLINE": (
        "The node was not heard of for so long that it counts as gone.",
        "Start the node's agent, then assess again.",
    ),
    "NODE_DOUBTFUL": (
        "The node is late with its word; it may be gone soon.",
        "Wait for the node's next word, or look at its agent with `modelforge doctor`.",
    ),
    "NODE_DISABLED": (
        "An operator took the node out of use.",
        "Enable it: `modelforge node enable NAME --reason …`, or choose another node.",
    ),
    "NODE_NOT_LAB_ELIGIBLE": (
        "The node is not allowed to run probes.",
        "Allow it: `modelforge node enable NAME --lab --reason …`, or choose another node.",
    ),
    "NODE_CANNOT_PROBE": (
        "The node's agent does not advertise that it runs probes.",
        "Upgrade the node's agent to a version that runs probes.",
    ),
    "NO_INSPECTOR": (
        "This version knows no adapter of that name, so nothing can be said about it.",
        "Use an adapter that this version knows: `modelforge environment show NODE`.",
    ),
    "ADAPTER_NOT_DECLARED": (
        "The node does not declare the profile's adapter at all.",
        "Upgrade the node's agent, or choose another node.",
    ),
    "ADAPTER_NOT_EXECUTABLE": (
        "The product could run this adapter, but the node lacks something for it.",
        "Install the `runtime` extra on the node, or use an adapter that it can execute.",
    ),
    "PACKAGE_MISSING": (
        "A package that the adapter or the set's files need is not installed on the node.",
        "Install it where the node's agent runs, and start the agent again; the `runtime` extra is for sentence_transformers.",
    ),
    "TASK_NOT_DECLARED": (
        "The adapter does not declare the profile's task.",
        "Use a profile that fits: `modelforge profile create NEWNAME --from PROFILE --task TASK`.",
    ),
    "MODALITY_NOT_DECLARED": (
        "The adapter does not declare a kind of input that the task needs.",
        "Use a profile that fits: `modelforge profile create NEWNAME --from PROFILE --task TASK`.",
    ),
    "MODEL_TYPE_NOT_DECLARED": (
        "The installed runtime does not know the model type that the configuration names.",
        "Choose an adapter or a node whose environment declares this model type.",
    ),
    "FORMAT_NOT_DECLARED": (
        "The adapter does not declare the format in which the weights lie.",
        "Choose an adapter or a node whose environment declares this weight format.",
    ),
    "DECLARED_NOT_PROVEN": (
        "Nothing speaks against the set. Static analysis loads nothing: only a probe is a proof.",
        "A probe proves it: approve the set and queue one.",
    ),
    "NO_GPU": (
        "The profile requires CUDA and the node has no card. It is never run on a CPU instead.",
        "Choose a node with a GPU, or a CPU profile. A CUDA profile never runs on a CPU.",
    ),
    "GPU_NOT_FOUND": (
        "The node has no card with the UUID that the profile names.",
        "Name a card that the node has: `modelforge node show NODE`.",
    ),
    "GPU_NOT_CHOSEN": (
        "The node has several cards and the profile names none of them.",
        "Name the card in a new profile: `modelforge profile create NEWNAME --from PROFILE --gpu-uuid UUID`.",
    ),
    "GPU_DRIVER_UNKNOWN": (
        "The node reports a card, but no version of its driver or of CUDA.",
        "Install NVIDIA's driver on the node and start its agent again.",
    ),
    "GPU_DTYPE_UNSUPPORTED": (
        "The card cannot compute in the profile's number type.",
        "Use `float16` or `float32` on this card.",
    ),
    "RUNTIME_WITHOUT_CUDA": (
        "The node's PyTorch is a CPU build, which sees no card.",
        "Install PyTorch's CUDA build on the node.",
    ),
    "HALF_PRECISION_ON_CPU": (
        "Half precision is slow or inexact on many CPUs.",
        "Use `float32` on a CPU unless the speed is measured and wanted.",
    ),
    "MEMORY_EXCEEDS_DEVICE": (
        "The estimate and the profile's margin do not fit the device's whole memory.",
        "Use a smaller dtype, batch or sequence length, or a device with more memory.",
    ),
    "MEMORY_EXCEEDS_LIMIT": (
        "The estimate is above what the profile allows the child process.",
        "Give the child more in a new profile: `modelforge profile create NEWNAME --from PROFILE --memory-limit-mib N`.",
    ),
    "MEMORY_TIGHT": (
        "The estimate and the margin fit the device, but not what was free when the node last spoke.",
        "Free memory before the probe; the figure is an estimate, the probe measures.",
    ),
    "MEMORY_UNKNOWN": (
        "No header says how large the model is, so there is no estimate.",
        "None is needed: the probe measures.",
    ),
    "CONFIG_MISSING": (
        "A configuration file that the runtime reads first is absent.",
        "Add the missing file to the folder, then scan and assess the new set.",
    ),
    "CONFIG_UNREADABLE": (
        "A configuration file is no JSON object, or lacks what the runtime cannot do without.",
        "Replace the file by a valid one, then scan and assess the new set.",
    ),
    "TOKENIZER_MISSING": (
        "There is no file of a tokenizer. A runtime may invent one and answer nonsense.",
        "Add the missing file to the folder, then scan and assess the new set.",
    ),
    "MODULES_MISSING": (
        "There is no modules.json; the runtime would invent a pooling.",
        "Use a folder saved by Sentence Transformers; without modules.json the pooling is a guess.",
    ),
    "MODULES_UNREADABLE": (
        "modules.json is no list of modules that begins with a Transformer.",
        "Replace modules.json by a valid one, then scan and assess the new set.",
    ),
    "MODULE_UNSUPPORTED": (
        "modules.json names a module that this version does not run.",
        "Use a model of the modules Transformer, Pooling, Dense and Normalize.",
    ),
    "MODULE_FOLDER_MISSING": (
        "modules.json names a folder that the set lacks.",
        "Add the missing file to the folder, then scan and assess the new set.",
    ),
    "POOLING_MISSING": (
        "How token vectors become one vector is written nowhere.",
        "Add the missing file to the folder, then scan and assess the new set.",
    ),
    "POOLING_MISMATCH": (
        "The pooling does not fit the model, or no mode of it is chosen.",
        "Take config.json and the pooling's config.json from one and the same model.",
    ),
    "NO_WEIGHTS": (
        "A folder that must hold weights has none that the runtime would load.",
        "Add the weights as Safetensors, then scan and assess the new set.",
    ),
    "WEIGHTS_CORRUPT": (
        "The header of a weight file contradicts itself or the file's size.",
        "Copy the file again, then scan and assess the new set.",
    ),
    "PICKLE_NOT_APPROVED": (
        "The weights are pickle, which can run code, and the set has no approval for that.",
        "Convert the weights to Safetensors, or approve the set for the purpose `pickle`.",
    ),
    "PICKLE_APPROVED": (
        "The weights are pickle; an operator approved that for this exact set.",
        "Convert the weights to Safetensors when you can.",
    ),
    "PICKLE_BESIDE_WEIGHTS": (
        "A pickle lies beside better weights. It is not loaded.",
        "Remove the file when nothing needs it; it is not loaded.",
    ),
    "SHARD_MISSING": (
        "A shard that the index, or the shards' own numbering, names is absent.",
        "Add the shard that the index names, or remove an index that belongs to other files.",
    ),
    "SHARD_INDEX_UNREADABLE": (
        "A shard index maps no tensors to files.",
        "Replace the index by a valid one, then scan and assess the new set.",
    ),
    "REMOTE_CODE_REQUIRED": (
        "A file asks for code from the folder or from another repository; such code is never run.",
        "Use a model that the runtime knows itself; code of a model folder is never run.",
    ),
    "CODE_IN_SET": (
        "The folder holds Python code. It is never run.",
        "Remove the file when nothing needs it; it is never run.",
    ),
    "ADAPTER_WEIGHTS": (
        "adapter_config.json makes the runtime look for a base model elsewhere.",
        "Merge the adapter into the full weights and remove adapter_config.json.",
    ),
    "QUANTIZED_WEIGHTS": (
        "The weights are quantized although the profile asks for no quantization.",
        "Use the unquantized model, or an adapter that declares this quantization.",
    ),
    "SEQUENCE_TOO_LONG": (
        "The profile wants more tokens than the model has positions for.",
        "Use a profile whose sequence length the model supports.",
    ),
    "EVIDENCE_INCOMPLETE": (
        "The scan could not read or keep something; what it says is not known here.",
        "Shrink the document, or take files that the model does not need out of the folder; then scan again.",
    ),
    "PICKLE_NOT_LOADED": (
        "The only weights are pickle, and this adapter loads no pickle, approved or not.",
        "Convert the weights to Safetensors, then scan and assess the new set.",
    ),
    "LOADER_OPTION_REFUSED": (
        "A file would hand the library an argument that can name files outside the set.",
        "Remove the key from the file, then scan and assess the new set.",
    ),
    "DEFAULT_PROMPT": (
        "The set puts a prompt before every text where it serves, but not in a probe.",
        "None is needed for a probe; give the prompt yourself where the model serves.",
    ),
    "SET_CORRUPT": (
        "A later read of the set's place on the node found other bytes than the scan did.",
        "Restore the file that is named, then scan the folder again.",
    ),
    "EVIDENCE_OUTDATED": (
        "The evidence was made by an older scan that did not look at formats and pickles.",
        "Scan the folder again: `modelforge artifact scan PATH --node NODE`.",
    ),
    "MEMBER_QUARANTINED": (
        "A file of the set is in quarantine, in whichever set it was found.",
        "Remove or replace the file; or review it and approve the purpose `quarantine_release`.",
    ),
    "QUARANTINE_RELEASED": (
        "A file is in quarantine, and an operator released it for this exact set.",
        "None is needed; revoke the approval to put the quarantine in force again.",
    ),
    "PROBE_NOT_AVAILABLE": (
        "This version can assess the adapter and cannot run it on any node.",
        "None is possible in this version; use an executable adapter to prove the set.",
    ),
    "NO_IMPLICIT_CLAIM": (
        "A custom runner is nobody's known runtime: nothing is claimed about it.",
        "Judge the runner yourself; only a proof of its own could say more.",
    ),
    "REQUIRES_PROBE": (
        "For this adapter static analysis claims nothing; only a probe can prove the set.",
        "A probe proves it, on a node that can run this adapter.",
    ),
    "FORMAT_MISMATCH": (
        "The bytes of a file are not what its name says.",
        "Get the right file, or remove it; then scan and assess the new set.",
    ),
    "LFS_POINTER": (
        "A file is a Git LFS pointer: a note about the file, not the file.",
        "Fetch the real files with `git lfs pull`, then scan and assess the new set.",
    ),
    "EMPTY_FILE": (
        "A weight or tokenizer file has no bytes at all.",
        "Copy the file again, then scan and assess the new set.",
    ),
    "ARCHIVE_IN_SET": (
        "The folder holds an archive. Nothing unpacks it.",
        "Unpack it yourself when its content is needed, else remove it.",
    ),
    "EXECUTABLE_IN_SET": (
        "The folder holds a program. It is never run.",
        "Remove the file when nothing needs it.",
    ),
    "PICKLE_CODE": (
        "A pickle names or calls what no tensor needs: loading it could run that.",
        "Do not load it. Convert the weights to Safetensors in a place that may be lost.",
    ),
    "PICKLE_UNREADABLE": (
        "A pickle cannot be read to its end, so nobody knows what it would do.",
        "Remove the file, or convert it to Safetensors where it may be lost; then scan and assess the new set.",
    ),
    "SHARD_MISMATCH": (
        "A shard index and the shards' own headers disagree about the tensors.",
        "Take index and shards from one and the same model.",
    ),
    "SHARD_UNINDEXED": (
        "A weight file is named by no index and bears no name that the runtime looks for.",
        "Add the index that names it, or remove a file that belongs to other weights.",
    ),
    "DUPLICATE_WEIGHTS": (
        "The same weights lie in the folder more than once; the message says which are used.",
        "Keep one of them and remove the others.",
    ),
    "NO_GGUF_ARTIFACT_VARIANT": (
        "The set has no GGUF file, and llama.cpp loads nothing else.",
        "Add a GGUF variant of the model, then scan and assess the new set.",
    ),
    "GGUF_SPLIT_INCOMPLETE": (
        "A GGUF in several parts lacks some of them.",
        "Add the missing parts, then scan and assess the new set.",
    ),
    "NO_PIPELINE": (
        "There is no readable model_index.json, so the folder is no Diffusers pipeline.",
        "Use the folder of a whole pipeline, or another adapter.",
    ),
    "PIPELINE_COMPONENT_MISSING": (
        "A part that model_index.json names is absent or incomplete.",
        "Add the part, then scan and assess the new set.",
    ),
    "EMBEDDING_REPOSITORY": (
        "The folder is an embedding model; it makes no images.",
        "Use the adapter `sentence_transformers` and the task `embedding`.",
    ),
    "PROCESSOR_MISSING": (
        "The file that says how images or sounds are prepared is absent, in both layouts.",
        "Add preprocessor_config.json or processor_config.json, then scan and assess the new set.",
    ),
    "GENERATION_CONFIG_MISSING": (
        "There is no generation_config.json; the runtime falls back on defaults of its own.",
        "Add the model's own generation_config.json, then scan and assess the new set.",
    ),
    "TOKENIZER_INCOMPLETE": (
        "Some files of the tokenizer are there and others that belong to them are not.",
        "Add the missing file to the folder, then scan and assess the new set.",
    ),
    "QUANTIZATION_NOT_EVIDENCED": (
        "The files do not show the quantization that the profile asks for.",
        "Use a profile without it, or a set that has it.",
    ),
    "QUANTIZATION_NOT_DECLARED": (
        "The adapter does not declare the quantization that the weights have.",
        "Choose an adapter or a node whose environment declares it.",
    ),
    "QUANTIZATION_PACKAGE_MISSING": (
        "The quantized weights need a package that the node lacks.",
        "Install the package on the node, or use the unquantized model.",
    ),
    "DTYPE_MISMATCH": (
        "The weights are stored in another number type than the profile's.",
        "None is needed when the change is meant; else use a profile of the stored type.",
    ),
    "GPU_CAPABILITY_TOO_LOW": (
        "The card's compute capability is below what the runtime or the quantization needs.",
        "Use a newer card, or a build of the runtime that still has kernels for this one.",
    ),
    "CUDA_DRIVER_TOO_OLD": (
        "The card's driver is older than the CUDA that the runtime was built for.",
        "Update NVIDIA's driver on the node, or install a build for an older CUDA.",
    ),
    "AUDIO_MISMATCH": (
        "What the profile says of sound differs from the model's own files.",
        "Use a profile whose audio values are the model's.",
    ),
    "IMAGE_SIZE_MISMATCH": (
        "Image sizes of profile, processor and model differ.",
        "Take processor and model from one set, or change the profile's image size.",
    ),
    "MODULE_FOLDER_ABSENT": (
        "A module that needs no file has no folder. Nothing is wrong.",
        "None is needed.",
    ),
    "TASK_MISMATCH": (
        "The model is made for another task than the profile's.",
        "Use a profile of the model's own task, or another model.",
    ),
    "HEAD_MISSING": (
        "The model lacks the head that the task needs; a runtime would make a random one.",
        "Use a model that was saved with this head.",
    ),
    "TOKENIZER_MISMATCH": (
        "The tokenizer's vocabulary does not fit the model's.",
        "Take tokenizer and model from one and the same set.",
    ),
    "PACKAGE_MISMATCH": (
        "Two packages of the node do not fit each other, so that the libraries cannot even be imported.",
        "Install builds of both that belong together, or remove torchvision: nothing here needs it.",
    ),
    "PARTIAL_DOWNLOAD": (
        "A file bears the name of a download that was not finished.",
        "Finish the download or remove the file, then scan and assess the new set.",
    ),
    "WEIGHTS_INCOMPLETE": (
        "The weights hold fewer parameters than the configuration promises; a runtime would invent the others.",
        "Take config.json and the weights from one and the same model.",
    ),
    "LAYER_COUNT_MISMATCH": (
        "The weights hold more or fewer layers than the configuration counts; a runtime would leave some out or invent some.",
        "Take config.json and the weights from one and the same model.",
    ),
    "CONFIG_IMPLAUSIBLE": (
        "A size in the configuration is no number that a model can have, or does not fit another one.",
        "Restore the model's own config.json, then scan and assess the new set.",
    ),
    "WEIGHTS_FOREIGN": (
        "Names or shapes in the weight headers are not those of the model that config.json describes.",
        "Take config.json and the weights from one and the same model.",
    ),
    "BUDGET_TOO_SHORT": (
        "The set is so large that a phase of a probe cannot read it within the profile's budget, even from a good disk.",
        "Give the phases more: `modelforge profile create NEWNAME --from NAME --preparing-s N --loading-s N --total-s N`.",
    ),
}
