"""Write tiny.mask.safetensors with numpy and safetensors alone: the mask file as another program makes it.

Run from this folder: python make_mask.py
The bits come from index arithmetic that golden.rs repeats, so that nothing but the file format is shared.
"""

import json

import numpy
from safetensors.numpy import save_file

# Name, shape, and which flat indices are set. Lengths below, at and past a word and a byte boundary.
PARAMETERS = {
    "model.layers.0.mlp.up_proj.weight": ([3, 23], lambda i: i % 3 == 0),
    "model.layers.0.mlp.down_proj.weight": ([8, 8], lambda i: (i * i) % 7 == 2),
    "model.layers.0.self_attn.q_proj.weight": ([5, 26], lambda i: i >= 120),
    "lm_head.weight": ([1, 1], lambda i: i == 0),
    "nothing": ([0, 7], lambda i: i >= 0),
}


def pack(shape, is_set):
    numel = int(numpy.prod(shape))
    bits = is_set(numpy.arange(numel)).astype(numpy.uint8)
    packed = numpy.packbits(bits, bitorder="little")
    return numpy.pad(packed, (0, -len(packed) % 8))


meta = {
    "k": 0.15,
    "formula": "math - (race | mmlu)",
    "seed": 18446744073709551615,
    "fingerprint": "sha256:00ff",
    "extra": {"rule": "weight-times-norm"},
}
save_file(
    {name: pack(*parameter) for name, parameter in PARAMETERS.items()},
    "tiny.mask.safetensors",
    metadata={
        "format": "mathneuro-mask",
        "version": "1",
        "shapes": json.dumps({name: shape for name, (shape, _) in PARAMETERS.items()}),
        "meta": json.dumps(meta),
    },
)
