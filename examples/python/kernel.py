"""A kernel that mkgen generated, from Python: everything is read from layout.json, which lies beside kernel.cu.

    kernel = Kernel("out/tiny", "tiny.cubin", pages=8, tensor=tensors.__getitem__)
    kernel.launch(pos=0, steps=1, known=1)

Needs torch and, to launch, cuda-python (`from cuda.bindings import driver`).
"""

import functools
import json
import pathlib
import struct

import torch

ORDER = ("bf16, little-endian; element (r, k) of a tile of 8 rows lies at byte (k/32)*512 + r*64 + (k%32)*2, "
         "the next tile 16*KPadded bytes on")
SCALARS = {"u32": "<I", "i32": "<i", "u64": "<Q", "f32": "<f"}


def load(directory):
    """The layout of a generated kernel."""
    return json.loads((pathlib.Path(directory) / "layout.json").read_text())


def pack(image, matrix, tensor):
    """Writes a matrix, that of every layer, into the weight buffer, a bf16 tensor of all its bytes."""
    if matrix["order"] != ORDER or matrix["tile_rows"] != 8 or matrix["k_padded"] % 32:
        raise ValueError(f"matrix {matrix['matrix']}: elements in an order that this program does not know: {matrix['order']}")
    tiles, k, columns = matrix["tiles"], matrix["k"], matrix["k_padded"]
    for layer in range(matrix["layers"]):
        rows = torch.zeros(8 * tiles, columns, dtype=torch.bfloat16, device=image.device)
        for run in matrix["sources"]:
            source = tensor(run["tensor"].replace("%d", str(layer)))
            first, step, count = run["source"], run["source_step"], run["count"]
            rows[run["row"] :: run["row_step"], :k][:count] = source[first::step][:count]
        # [tile][row][group of 32][column] becomes [tile][group][row][column]
        packed = rows.view(tiles, 8, columns // 32, 32).transpose(1, 2).reshape(tiles, 8 * columns)
        base = matrix["base"] + layer * matrix["layer_stride"]
        for first, count, offset in zip(matrix["first"], matrix["count"], matrix["offset"]):  # an SM's tiles lie together
            at = (base + offset) // 2
            image[at : at + 8 * columns * count] = packed[first : first + count].reshape(-1)


def size(field, pages):
    """The bytes of a buffer, for a context of that many pages."""
    total = field.get("bytes") or field.get("page_bytes", 0) * pages + field.get("more_bytes", 0)
    if not total:
        raise ValueError(f"buffer {field['name']}: the layout does not say how big it is, but {field.get('size')!r}")
    return total


def fill(layout, pages, tensor, device):
    """All buffers as torch tensors by name, with what must be in them before the first launch: the packed weights, the
    tensors and the tables that the layout names, zero elsewhere, and pages in order. tensor(name) gives a tensor of
    the checkpoint; each is used as bfloat16."""
    @functools.lru_cache(maxsize=3)  # q, k and v, or gate and up
    def read(name):
        return tensor(name).to(device=device, dtype=torch.bfloat16)

    buffers = {f["name"]: torch.zeros(size(f, pages), dtype=torch.uint8, device=device) for f in layout["params"] if f["pointer"]}
    for matrix in layout["packing"]:
        pack(buffers["weights"].view(torch.bfloat16), matrix, read)
    for field in layout["params"]:
        if "tensors" in field:
            torch.cat([read(name).reshape(-1) for name in field["tensors"]], out=buffers[field["name"]].view(torch.bfloat16))
    for table in layout["tables"]:
        words = b"".join(int(word, 16).to_bytes(4, "little") for word in table["words"].split())
        buffers[table["name"]].copy_(torch.frombuffer(bytearray(words), dtype=torch.uint8))
    buffers["page_table"].view(torch.int32).copy_(torch.arange(pages))
    return buffers


def block(layout, addresses, scalars):
    """The params block: the addresses of the buffers and the scalars, by name."""
    out = bytearray(layout["params_bytes"])
    for field in layout["params"]:
        if field["pointer"]:
            struct.pack_into("<Q", out, field["offset"], addresses[field["name"]])
        else:
            struct.pack_into(SCALARS[field["type"]], out, field["offset"], scalars[field["name"]])
    return bytes(out)


class Kernel:
    """A loaded kernel with its buffers in the memory of the current CUDA device; buffers are torch tensors of bytes."""

    def __init__(self, directory, cubin, pages, tensor):
        from cuda.bindings import driver

        self.layout, self.driver, self.pages = load(directory), driver, pages
        if not self.layout["params_by_value"] or self.layout["cluster_size"] != 1:
            raise ValueError("this program passes the params block by value and launches without clusters")
        self.buffers = fill(self.layout, pages, tensor, "cuda")  # this also makes torch's context the current one
        for field in self.layout["params"]:
            if field["pointer"] and self.buffers[field["name"]].data_ptr() % field["align"]:
                raise ValueError(f"buffer {field['name']} is not aligned to {field['align']} bytes")
        self.module = self._call(driver.cuModuleLoadData, pathlib.Path(cubin).read_bytes())
        self.function = self._call(driver.cuModuleGetFunction, self.module, self.layout["kernel"].encode())
        self._call(driver.cuFuncSetAttribute, self.function,
                   driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, self.layout["shared_bytes"])

    def _call(self, function, *args):
        code, *values = function(*args)
        if code != self.driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"{function.__name__}: {code.name}")
        return values[0] if values else None

    def view(self, name):
        """A buffer as elements of its type; u32 as int32, which torch can compute with."""
        kind = next(f["type"] for f in self.layout["params"] if f["name"] == name)
        return self.buffers[name].view({"u32": torch.int32, "f32": torch.float32, "bf16": torch.bfloat16}[kind])

    def launch(self, **scalars):
        """One cooperative launch on torch's current stream; it does not wait for the end."""
        import numpy

        addresses = {name: b.data_ptr() for name, b in self.buffers.items()}
        params = numpy.frombuffer(block(self.layout, addresses, {"pages": self.pages, **scalars}), dtype=numpy.uint8)
        arguments = numpy.array([params.ctypes.data], dtype=numpy.uint64)  # the driver copies the block
        layout, stream = self.layout, self.driver.CUstream(torch.cuda.current_stream().cuda_stream)
        self._call(self.driver.cuLaunchCooperativeKernel, self.function, layout["grid"], 1, 1, layout["threads"], 1, 1,
                   layout["shared_bytes"], stream, arguments.ctypes.data)

    def generate(self, tokens, pos, choose=1):
        """Feeds tokens from position pos on, then what the kernel chooses itself, in one launch; returns the tokens chosen."""
        known, steps = pos + len(tokens), len(tokens) + choose - 1
        self.view("tokens")[pos:known] = torch.tensor(tokens, dtype=torch.int32)
        self.launch(pos=pos, steps=steps, known=known)
        end = self.view("progress").item()  # this waits
        if end != pos + steps:
            raise RuntimeError(f"the launch ended at position {end}, want {pos + steps}")
        return self.view("tokens")[known : end + 1].tolist()
