"""A server of a trained model: one thread computes, and each token of each request is sent as it is made."""
