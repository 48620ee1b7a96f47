"""From text to numbers: reading files, tokenizers, examples, batches, the order of batches, downloads."""
