"""Models of Hugging Face as they are, with random weights: whole, with adapters, in its Trainer."""

import peft
import pytest
import torch
import transformers
from torch import nn

from taut.errors import UnsoundConfiguration
from taut.training import (
    FlatClip,
    Logs,
    Plan,
    PrivateTrainer,
    causal_lm_loss,
    make_trainer_private,
    masked_lm_loss,
    seq2seq_loss,
)
from taut.training._tensors.examples import apply, examples_of
from taut.training.extend import PrivateGradient

# Between these packages, not for those who use them.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")

WORDS, TOKENS, N = 30, 8, 5
SMALL = {"vocab_size": WORDS, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 0}
SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 24,
}


def gpt2(dropout=0.0):
    drops = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), dropout)
    config = transformers.GPT2Config(
        **SMALL, n_positions=TOKENS, n_embd=16, n_layer=1, n_head=2, **drops
    )
    return transformers.GPT2LMHeadModel(config)


def llama(checkpoints=False):
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL, **SIZES))
    if checkpoints:
        model.gradient_checkpointing_enable()
    return model


def bert():
    config = transformers.BertConfig(
        **SMALL, **SIZES, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    return transformers.BertForMaskedLM(config)


def t5():
    config = transformers.T5Config(
        **SMALL, d_model=16, d_kv=8, d_ff=24, num_layers=1, num_heads=2, dropout_rate=0.0,
        decoder_start_token_id=0,
    )  # fmt: skip
    return transformers.T5ForConditionalGeneration(config)


def qwen_moe():
    config = transformers.Qwen2MoeConfig(
        **SMALL, **SIZES, num_key_value_heads=2, num_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=8, shared_expert_intermediate_size=8,
    )  # fmt: skip
    return transformers.Qwen2MoeForCausalLM(config)


def vit():
    drops = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0)
    config = transformers.ViTConfig(**SIZES, image_size=8, patch_size=4, num_labels=3, **drops)
    return transformers.ViTForImageClassification(config)


def with_lora(model, targets=("c_attn",), **options):
    config = peft.LoraConfig(r=2, target_modules=list(targets), init_lora_weights=False, **options)
    return peft.get_peft_model(model, config)


def texts(count=N):
    rows = []
    for i in range(count):
        mask = (torch.arange(TOKENS) < TOKENS - i % 4).long()
        ids = torch.randint(2, WORDS, (TOKENS,))
        rows.append(
            {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}
        )
    return rows


def classified(outputs, targets):
    return nn.functional.cross_entropy(outputs.logits, targets, reduction="none")


def pictures():
    return {"pixel_values": torch.randn(N, 3, 8, 8)}, torch.randint(3, (N,))


CASES = {
    "GPT-2": (gpt2, causal_lm_loss, "bookkeeping"),
    "GPT-2 with LoRA": (
        lambda: with_lora(gpt2(), fan_in_fan_out=True),
        causal_lm_loss,
        "bookkeeping",
    ),
    "Llama": (llama, causal_lm_loss, "bookkeeping"),
    "Llama with checkpoints": (lambda: llama(checkpoints=True), causal_lm_loss, "materialised"),
    "BERT": (bert, masked_lm_loss, "bookkeeping"),
    "T5": (t5, seq2seq_loss, "materialised"),
    "T5 with LoRA": (lambda: with_lora(t5(), "qv"), seq2seq_loss, "bookkeeping"),
    "Qwen-MoE": (qwen_moe, causal_lm_loss, "materialised"),
    "Qwen-MoE with LoRA": (
        lambda: with_lora(qwen_moe(), ["q_proj", "v_proj"]),
        causal_lm_loss,
        "bookkeeping",
    ),
    "ViT": (vit, classified, "bookkeeping"),
    "ViT with LoRA": (
        lambda: with_lora(vit(), ["q_proj", "v_proj"]),
        classified,
        "bookkeeping",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_sum_is_that_of_a_loop(name):
    torch.manual_seed(0)
    build, loss, backend = CASES[name]
    model = build().train()
    batch = torch.utils.data.default_collate(texts())
    labels = batch.pop("labels")
    if name.startswith("T5"):
        batch["decoder_input_ids"] = batch["input_ids"]
    if name.startswith("ViT"):
        batch, labels = pictures()
    parameters = [p for p in model.parameters() if p.requires_grad]
    expected = [torch.zeros_like(p) for p in parameters]
    for i in range(N):
        one = slice(i, i + 1)
        value = loss(apply(model, examples_of(batch, one)), labels[one]).sum()
        grads = torch.autograd.grad(value, parameters, allow_unused=True, materialize_grads=True)
        weight = min(1.0, 0.5 / float(torch.stack([g.norm() for g in grads]).norm()))
        for sum_, grad in zip(expected, grads, strict=True):
            sum_ += weight * grad
    private = PrivateGradient(model, FlatClip(0.5), scales=[0.0], expected_batch_size=1.0)
    private.accumulate_batch(batch, labels, loss)
    private.finish()
    for parameter, sum_ in zip(parameters, expected, strict=True):
        torch.testing.assert_close(parameter.grad, sum_, rtol=1e-3, atol=1e-5)
    assert private.backend == backend


@pytest.mark.parametrize("seed", [3, 7, 14])
def test_experts_chosen_by_saturated_scores_are_no_leak(seed):
    torch.manual_seed(seed)
    batch = torch.utils.data.default_collate(texts())
    labels = batch.pop("labels")
    model = with_lora(qwen_moe(), ["q_proj", "v_proj"]).train()
    private = PrivateGradient(model, FlatClip(0.5), scales=[0.0], expected_batch_size=1.0)
    private.accumulate_batch(batch, labels, causal_lm_loss)
    assert private.backend == "bookkeeping"


def test_trainer_of_taut_leaves_a_model_that_generates():
    torch.manual_seed(0)
    model = with_lora(gpt2(dropout=0.1), fan_in_fan_out=True)
    plan = Plan(examples=24, batch_size=8, epochs=1, epsilon=4, delta=1e-2, clipping=FlatClip(1.0))
    result = PrivateTrainer(
        model,
        causal_lm_loss,
        plan,
        optimizer=lambda parameters: torch.optim.AdamW(parameters, lr=1e-3),
        logs=Logs(progress=False),
    ).fit(texts(24))
    assert result.steps == 3
    model.eval()
    start = torch.tensor([[2, 3]])
    assert model.generate(input_ids=start, max_new_tokens=3, min_new_tokens=3).shape == (1, 5)


def hf_trainer(model, path, **options):
    arguments = transformers.TrainingArguments(
        output_dir=str(path),
        per_device_train_batch_size=8,
        **{"num_train_epochs": 2} | options,
        report_to=[],
        use_cpu=True,
        logging_strategy="no",
        save_strategy="no",
        disable_tqdm=True,
    )
    data = texts(24)
    return transformers.Trainer(model=model, args=arguments, train_dataset=data, eval_dataset=data)


def test_trainer_of_hugging_face_is_made_private(tmp_path):
    torch.manual_seed(0)
    model = gpt2(dropout=0.1)
    trainer = hf_trainer(model, tmp_path)
    before = model.transformer.wte.weight.detach().clone()
    optimizer = make_trainer_private(
        trainer, target_epsilon=8.0, target_delta=1e-2, max_grad_norm=1.0
    )
    trainer.train()
    assert optimizer.ledger.steps == 6
    assert 4.0 < optimizer.get_epsilon(1e-2) <= 8.0
    assert not torch.equal(before, model.transformer.wte.weight)
    rows = torch.utils.data.default_collate(texts(24))
    assert trainer.evaluate()["eval_loss"] > 0
    optimizer.remove()
    assert model.eval().generate(rows["input_ids"][:1, :2], max_new_tokens=2).shape[0] == 1


def test_trainer_of_hugging_face_takes_correlated_noise(tmp_path):
    model = gpt2()
    trainer = hf_trainer(model, tmp_path)
    optimizer = make_trainer_private(
        trainer,
        target_epsilon=8.0,
        target_delta=1e-2,
        max_grad_norm=1.0,
        noise="banded",
        sampling="balls_in_bins",
        ledger=tmp_path / "loop.jsonl",
    )
    trainer.train()
    assert optimizer.ledger.steps == optimizer.plan.steps == 6
    assert optimizer.loss == optimizer.plan.loss
    assert optimizer.plan.encoder is not None
    assert (tmp_path / "loop.jsonl.private.noise").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gradient_accumulation_steps": 2}, "gradient_accumulation_steps"),
        ({"max_steps": 5}, "max_steps"),
        ({"auto_find_batch_size": True}, "auto_find_batch_size"),
    ],
)
def test_trainer_that_counts_otherwise_is_refused(tmp_path, options, message):
    trainer = hf_trainer(gpt2(), tmp_path, **options)
    with pytest.raises(UnsoundConfiguration, match=message):
        make_trainer_private(trainer, target_epsilon=8.0, target_delta=1e-2, max_grad_norm=1.0)


def test_several_devices_and_scaled_losses_are_refused(tmp_path):
    for name, value, message in (("_n_gpu", 2, "several devices"), ("fp16", True, "bf16=True")):
        trainer = hf_trainer(gpt2(), tmp_path)
        setattr(trainer.args, name, value)
        with pytest.raises(UnsoundConfiguration, match=message):
            make_trainer_private(trainer, target_epsilon=8.0, target_delta=1e-2, max_grad_norm=1.0)
