"""Tiny encoder-decoders, models of images, sound and video, and models of several of them, all of transformers."""

from collections.abc import Callable
from typing import Any

import torch
import transformers as hf

from .oracle import Inputs

_TEXT: dict[str, Any] = {
    "vocab_size": 31,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "pad_token_id": 0,
}
_IMAGE: dict[str, Any] = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "image_size": 16,
    "patch_size": 4,
}
_PAIRS: dict[str, Any] = {
    "vocab_size": 31,
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "use_cache": False,
}


def tokens(examples: int) -> Inputs:
    return {"input_ids": torch.randint(4, 31, (examples, 8))}


def pairs(examples: int) -> Inputs:
    return {**tokens(examples), "decoder_input_ids": torch.randint(4, 31, (examples, 5))}


def images(examples: int) -> Inputs:
    return {"pixel_values": torch.randn(examples, 3, 16, 16, dtype=torch.float64)}


def videos(examples: int) -> Inputs:
    return {"pixel_values": torch.randn(examples, 2, 3, 16, 16, dtype=torch.float64)}


def spectra(examples: int) -> Inputs:
    return {"input_values": torch.randn(examples, 16, 16, dtype=torch.float64)}


def captions(examples: int) -> Inputs:
    """Images, each with a text that has 16 places for its patches."""
    places = torch.full((examples, 16), 3)
    return {**images(examples), "input_ids": torch.cat([places, torch.randint(4, 31, (examples, 4))], 1)}


def swin() -> Any:
    sizes: dict[str, Any] = {"image_size": 16, "patch_size": 2, "embed_dim": 8, "window_size": 4}
    return hf.SwinForImageClassification(hf.SwinConfig(**sizes, depths=[2, 1], num_heads=[2, 2]))


def patched_spectra() -> Any:
    sizes = {**_IMAGE, "frequency_stride": 4, "time_stride": 4, "max_length": 16, "num_mel_bins": 16}
    del sizes["image_size"]
    return hf.ASTForAudioClassification(hf.ASTConfig(**sizes))


def llava() -> Any:
    parts: dict[str, Any] = {"text_config": hf.LlamaConfig(**_TEXT), "vision_config": hf.CLIPVisionConfig(**_IMAGE)}
    return hf.LlavaForConditionalGeneration(hf.LlavaConfig(**parts, image_token_index=3))


def deberta() -> Any:
    config = hf.DebertaV2Config(**_TEXT, relative_attention=True, pos_att_type=["p2c", "c2p"])
    return hf.DebertaV2ForMaskedLM(config)


def xlnet() -> Any:
    config = hf.XLNetConfig(vocab_size=31, d_model=16, n_layer=1, n_head=4, d_inner=24, pad_token_id=0)
    return hf.XLNetLMHeadModel(config)


def timesformer() -> Any:
    return hf.TimesformerForVideoClassification(hf.TimesformerConfig(**_IMAGE, num_frames=2))


Made = tuple[Callable[[], Any], Callable[[int], Inputs]]
AS_THEY_COME: dict[str, Made] = {
    "Marian": (lambda: hf.MarianMTModel(hf.MarianConfig(**_PAIRS)), pairs),
    "Albert": (lambda: hf.AlbertForMaskedLM(hf.AlbertConfig(**_TEXT, embedding_size=8)), tokens),
    "Beit": (lambda: hf.BeitForImageClassification(hf.BeitConfig(**_IMAGE, use_relative_position_bias=True)), images),
    "AST": (patched_spectra, spectra),
    "Llava": (llava, captions),
}
SHOWN: dict[str, Made] = {
    "LED": (
        lambda: hf.LEDForConditionalGeneration(
            hf.LEDConfig(**_PAIRS, attention_window=4, max_encoder_position_embeddings=16)
        ),
        pairs,
    ),
    "XLNet": (xlnet, tokens),
    "Swin": (swin, images),
    "TimeSformer": (timesformer, videos),
    "Llava": (llava, captions),
}
