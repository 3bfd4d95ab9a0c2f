"""Every source file has a test file of its name, or a reason why not, and every test file has a source."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = {
    path.relative_to(ROOT / "flipout").as_posix()
    for path in (ROOT / "flipout").rglob("*.py")
    if path.stem not in ("__init__", "__main__")
}
TESTS = {path.relative_to(ROOT / "tests").as_posix() for path in (ROOT / "tests").rglob("test_*.py")}

# Why a source file has no test of its name.
EXEMPT = {
    "names of the library's own files alone, which test_files.py, test_typed.py and test_tensor_files.py try": (
        "experiments/door.py",
    ),
    "settings only: running/test_experiment.py and test_registry.py try every preset": (
        "experiments/es/llm/presets.py",
        "experiments/es/noise/presets.py",
        "experiments/es/presets.py",
        "experiments/es/rl/presets.py",
        "experiments/es/scaling/presets.py",
        "experiments/es/tuning/presets.py",
        "experiments/lora/presets.py",
        "experiments/lora/sentiment/presets.py",
        "experiments/posterior/presets.py",
        "experiments/shift/presets.py",
        "experiments/uci/presets.py",
        "experiments/uncertainty/presets.py",
        "experiments/variance/language_presets.py",
        "experiments/variance/presets.py",
    ),
    "plots only: test_registry.py draws them in its smoke runs, test_figures.py compares the committed ones": (
        "experiments/es/llm/figures.py",
        "experiments/es/noise/figures.py",
        "experiments/es/rl/figures.py",
        "experiments/es/scaling/figures.py",
        "experiments/es/tuning/figures.py",
        "experiments/language/figures.py",
        "experiments/large_batch/figures.py",
        "experiments/lora/figures.py",
        "experiments/lora/sentiment/figures.py",
        "experiments/posterior/figures.py",
        "experiments/shift/figures.py",
        "experiments/uci/figures.py",
        "experiments/uncertainty/figures.py",
        "experiments/variance/figures.py",
    ),
    "run from start to end by the smoke runs of experiments/test_registry.py": ("experiments/variance/multigpu.py",),
    "exported by bayes/likelihoods.py, whose test compares them with torch.distributions": (
        "bayes/_class_likelihoods.py",
        "bayes/_likelihood.py",
        "bayes/_number_likelihoods.py",
    ),
    "parts of the checks, which testing/test_wrong_layers.py puts to layers with one known defect each": (
        "testing/_dependence.py",
        "testing/_gradients.py",
        "testing/_kl.py",
        "testing/_marginals.py",
        "testing/_positions.py",
        "testing/_quiet.py",
    ),
    "device code inside the kernels of noise, which ops/triton/test_paired_noise.py and test_sign_noise.py compare": (
        "ops/triton/noise.py",
        "ops/triton/noise_words.py",
    ),
    "device code inside the kernels that ops/triton/test_lstm.py compares with the definition": (
        "ops/triton/dot_product.py",
        "ops/triton/lstm_gates.py",
        "ops/triton/lstm_packing.py",
        "ops/triton/lstm_persistent.py",
        "ops/triton/lstm_persistent_backward.py",
        "ops/triton/lstm_persistent_forward.py",
        "ops/triton/lstm_stepwise_backward.py",
        "ops/triton/lstm_stepwise_forward.py",
        "ops/triton/reductions.py",
    ),
}

# Test files about many source files at once.
CROSS_CUTTING = {
    "bayes/test_data_parallel.py",
    "bayes/test_predict_errors.py",
    "bayes/test_predict_input.py",
    "experiments/report/test_page_browser.py",
    "experiments/report/test_page_untrusted.py",
    "experiments/shift/test_committed.py",
    "experiments/test_claims.py",
    "experiments/test_committed.py",
    "experiments/test_figures.py",
    "experiments/test_imports.py",
    "faults/test_chaos.py",
    "faults/test_command_line.py",
    "faults/test_figures.py",
    "faults/test_fuzz.py",
    "faults/test_hostile_page.py",
    "faults/test_security.py",
    "faults/test_systems.py",
    "nn/test_sequences.py",
    "nn/test_transformer.py",
    "ops/triton/test_fits.py",
    "ops/triton/test_models.py",
    "ops/triton/test_no_device.py",
    "peft/test_conformance.py",
    "peft/test_mutual_information.py",
    "peft/test_training.py",
    "regularizers/test_weight_drop.py",
    "scaling/test_ranks.py",
    "scaling/test_restarted.py",
    "test_api.py",
    "test_autograd.py",
    "test_bad_input.py",
    "test_benchmarks.py",
    "test_calls.py",
    "test_command.py",
    "test_compile.py",
    "test_compile_graphs.py",
    "test_compile_pairs.py",
    "test_contributing.py",
    "test_data_parallel.py",
    "test_docs.py",
    "test_gpu.py",
    "test_gpu_captured.py",
    "test_imports.py",
    "test_mirror.py",
    "test_names.py",
    "test_notebooks.py",
    "test_others_get_wrong.py",
    "test_readme.py",
    "test_release.py",
    "test_site.py",
    "test_statistics.py",
    "testing/test_conformance.py",
    "testing/test_wrong_layers.py",
    "variance/test_data_parallel.py",
    "zoo/test_generation.py",
    "zoo/test_gradient_checkpointing.py",
    "zoo/test_graphs.py",
    "zoo/test_images.py",
    "zoo/test_life.py",
    "zoo/test_others.py",
    "zoo/test_peft.py",
    "zoo/test_sweep.py",
    "zoo/test_text.py",
    "zoo/test_trainer.py",
    "zoo/test_vision.py",
}


def mirrored(source: str) -> str:
    """Return the test file of a source file, both below their roots."""
    path = Path(source)
    return (path.parent / f"test_{path.stem.lstrip('_')}.py").as_posix()


def test_every_source_has_a_test_of_its_name() -> None:
    exempt = {source for sources in EXEMPT.values() for source in sources}
    missing = sorted(source for source in SOURCES - exempt if mirrored(source) not in TESTS)
    assert not missing, f"no test file of their name: {', '.join(missing)}"


def test_every_test_has_a_source_of_its_name() -> None:
    lone = sorted(TESTS - {mirrored(source) for source in SOURCES} - CROSS_CUTTING)
    assert not lone, f"no source file of their name: {', '.join(lone)}"


def test_no_exemption_is_stale() -> None:
    listed = [source for sources in EXEMPT.values() for source in sources]
    assert len(listed) == len(set(listed))
    stale = [source for source in listed if source not in SOURCES or mirrored(source) in TESTS]
    stale += sorted(CROSS_CUTTING - TESTS)
    stale += sorted(CROSS_CUTTING & {mirrored(source) for source in SOURCES})
    assert not stale, f"listed, but gone or no longer an exception: {', '.join(stale)}"
