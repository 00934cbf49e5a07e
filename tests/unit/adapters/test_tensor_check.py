"""Which tensors of a file a trunk may leave out; what a library does with the others is in tests/contract/adapters."""

from __future__ import annotations

import pytest

from adapters.tensor_check import may_be_unused


@pytest.mark.req("P9")
@pytest.mark.parametrize(
    "name",
    [
        "cls.predictions.bias",
        "cls.predictions.transform.LayerNorm.weight",
        "classifier.out_proj.weight",
        "lm_head.weight",
        "lm_head.decoder.bias",
        "qa_outputs.bias",
        "score.weight",
        "vocab_projector.bias",
        "linear.weight",
        "pooler.dense.weight",
        "bert.pooler.dense.bias",
        "bert.embeddings.position_ids",
        "model.layers.3.self_attn.rotary_emb.inv_freq",
        "h.11.attn.bias",
        "h.11.attn.masked_bias",
        "cls.layers.0.weight",
    ],
)
def test_heads_poolers_and_computed_tables_may_be_unused(name: str) -> None:
    assert may_be_unused(name)


@pytest.mark.req("P9")
@pytest.mark.parametrize(
    "name",
    [
        "encoder.layer.6.output.dense.bias",
        "encoder.layer.6.pooler.dense.weight",
        "encoder.layer.6.score.weight",
        "model.layers.3.self_attn.q_proj.bias",
        "embeddings.word_embeddings.weight",
        "m.encoder.layer.0.output.dense.bias",
        "embeddings.linear.weight",
        "preclassifiers.weight",
        "position_ids_table",
    ],
)
def test_no_part_of_a_trunk_may_be_unused(name: str) -> None:
    assert not may_be_unused(name)
