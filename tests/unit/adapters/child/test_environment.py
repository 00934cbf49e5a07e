from __future__ import annotations

import pytest

from adapters.child import environment


@pytest.mark.req("P11")
def test_a_child_gets_the_offline_variables_and_nothing_that_was_not_listed() -> None:
    own = {
        "PATH": "/usr/bin",
        "HF_TOKEN": "secret",
        "HTTPS_PROXY": "http://proxy",
        "PYTHONPATH": "/evil",
        "LANG": "C.UTF-8",
        "LD_PRELOAD": "/evil.so",
        "HF_HUB_OFFLINE": "0",
        "AWS_SECRET_ACCESS_KEY": "x",
        "HOME": "/srv/me",
    }
    made = environment.child_environment(own, "/scratch/1")
    for name in ("PATH", "HF_TOKEN", "HTTPS_PROXY", "PYTHONPATH", "LD_PRELOAD", "AWS_SECRET_ACCESS_KEY"):
        assert name not in made
    assert made["HF_HUB_OFFLINE"] == made["TRANSFORMERS_OFFLINE"] == made["HF_DATASETS_OFFLINE"] == "1"
    assert made["LANG"] == "C.UTF-8"
    assert made["HOME"] == made["HF_HOME"] == made["TMPDIR"] == "/scratch/1"
    assert made["OMP_NUM_THREADS"] == made["OPENBLAS_NUM_THREADS"] == "1"
    assert made["CUDA_VISIBLE_DEVICES"] == ""


def test_what_it_makes_is_what_it_accepts() -> None:
    made = environment.child_environment({"LANG": "C"}, "/scratch/1")
    assert environment.offline_faults(made) == []
    assert environment.foreign_names(made) == []
    assert environment.foreign_names({**made, "HTTP_PROXY": "x"}) == ["HTTP_PROXY was not expected"]
    assert environment.offline_faults({**made, "HF_HUB_OFFLINE": "0"}) == ["HF_HUB_OFFLINE is not 1"]
