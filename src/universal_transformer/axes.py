"""Names of tensor axes: every annotation of a shape in the package uses them.

========== =====================================================================================
axis       meaning
========== =====================================================================================
batch      sequences computed together
position   places of one sequence (``m`` or ``n`` in the paper)
source     positions of the encoder (``m``)
target     positions of the decoder (``n``), or frames that it writes
new        positions of the decoder in one call
output     numbers of a frame that is written
query, key positions of queries and positions of keys in attention
width      channels of a state (``d``)
heads      attention heads (``k``)
key_heads  heads of keys and values, where several heads of queries share one
head       channels of one head (``d / k``)
filter     channels inside a transition
row        running positions of a batch, concatenated
channel    key and value of one position, concatenated
step       depth steps, ``t = 1 … T``
layer      applications of a block, in order (several a step, if a step has several blocks)
words      words of one fact
classes    what logits range over: words of a vocabulary, or answers
========== =====================================================================================
"""

from jaxtyping import Bool as Bool
from jaxtyping import Float as Float
from jaxtyping import Int as Int
from torch import Tensor as Tensor

States = Float[Tensor, "batch position width"]
Padding = Bool[Tensor, "batch position"]  # True where there is no token
PerPosition = Float[Tensor, "batch position"]
PerStep = Float[Tensor, "step batch position"]
Positions = Int[Tensor, "#batch position"]  # one row serves a whole batch
Heads = Float[Tensor, "batch heads position head"]
Weights = Float[Tensor, "batch heads query key"]
Rows = Float[Tensor, "row width"]
PerRow = Float[Tensor, "row"]
Values = Float[Tensor, "*rows"]  # of all positions of a batch, or of rows
Vectors = Float[Tensor, "*rows width"]
Index = Int[Tensor, "row"]  # where rows come from or go to
KeysAndValues = Float[Tensor, "row channel"]
Scalar = Float[Tensor, ""]
