"""Position encodings beyond the paper's, each a class with the protocol of `nn.coordinates.PositionEncoder`."""
