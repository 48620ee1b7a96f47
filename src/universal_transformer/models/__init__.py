"""Whole models and their configuration."""
