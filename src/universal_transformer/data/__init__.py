"""Text into numbers: reading files, tokenisers, examples, batches, the order of batches, downloads."""
