"""Bayesian LoRA: what a posterior on an adapter gives, and what signs per token lose."""
