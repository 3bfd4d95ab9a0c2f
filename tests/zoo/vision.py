"""Tiny models of images and sound."""

import torch
import transformers

from .oracle import Family, Inputs


def vit() -> Family:
    """A classifier of 8 × 8 images in patches of four."""
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=24,
        image_size=8,
        patch_size=4,
        num_labels=5,  # pyright: ignore[reportCallIssue]
    )

    def images(examples: int) -> Inputs:
        return {"pixel_values": torch.randn(examples, 3, 8, 8, dtype=torch.float64)}

    return Family(lambda: transformers.ViTForImageClassification(config), images)


def whisper() -> Family:
    """A speech recogniser over ten frames."""
    config = transformers.WhisperConfig(
        vocab_size=31,
        num_mel_bins=6,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
        max_source_positions=5,
        max_target_positions=8,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        use_cache=False,
    )

    def sounds(examples: int) -> Inputs:
        features = torch.randn(examples, 6, 10, dtype=torch.float64)
        return {"input_features": features, "decoder_input_ids": torch.randint(3, 31, (examples, 4))}

    return Family(lambda: transformers.WhisperForConditionalGeneration(config), sounds)
