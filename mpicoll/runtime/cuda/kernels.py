"""CUDA source of fused reductions: any number of operands, any dtype, any alignment."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from mpicoll.runtime.arguments.operators import Operator

#: threads of a block, and the most blocks of a grid (8 for each of an H100's 132 multiprocessors)
THREADS, MOST_BLOCKS = 256, 1056

#: storage type T, arithmetic type A, and how to get from one to the other
_HALF = """
__device__ __forceinline__ A load(T x) { A y; asm("{cvt.f32.f16 %0, %1;}" : "=f"(y) : "h"(x)); return y; }
__device__ __forceinline__ T store(A x) { T y; asm("{cvt.rn.f16.f32 %0, %1;}" : "=h"(y) : "f"(x)); return y; }
"""
_BFLOAT = """
__device__ __forceinline__ A load(T x) { return __uint_as_float(((unsigned)x) << 16); }
__device__ __forceinline__ T store(A x) { T y; asm("{cvt.rn.bf16.f32 %0, %1;}" : "=h"(y) : "f"(x)); return y; }
"""
_PLAIN = """
__device__ __forceinline__ A load(T x) { return x; }
__device__ __forceinline__ T store(A x) { return x; }
"""
#: of two NaN the adder of doubles keeps one by its place in the instruction, where the compiler may swap them: the
#: kernels of two ranks could differ. (The adder of floats gives one NaN for all.)
_ONE_NAN = """
__device__ __forceinline__ double one_nan(double x) { return x == x ? x : __longlong_as_double(0x7ff8000000000000LL); }
"""
_DOUBLE = f"""{_ONE_NAN}
__device__ __forceinline__ A load(T x) {{ return x; }}
__device__ __forceinline__ T store(A x) {{ return one_nan(x); }}
"""
_DOUBLE_COMPLEX = f"""{_ONE_NAN}
__device__ __forceinline__ A load(T x) {{ return x; }}
__device__ __forceinline__ T store(A x) {{ return C(one_nan(x.re), one_nan(x.im)); }}
"""
_COMPLEX = """
struct __align__(sizeof(R)) C {
  R re, im;
  __device__ C() {}
  __device__ C(R r, R i = 0) : re(r), im(i) {}
};
__device__ __forceinline__ C operator+(C a, C b) { return C(a.re + b.re, a.im + b.im); }
__device__ __forceinline__ C operator*(C a, C b) {
  return C(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re);
}
__device__ __forceinline__ C operator/(C a, R b) { return C(a.re / b, a.im / b); }
__device__ __forceinline__ bool operator!=(C a, C b) { return a.re != b.re || a.im != b.im; }
"""

#: dtype -> (C type that is stored, C type that is computed with, conversions)
_TYPES = {
    "bool": ("unsigned char", "unsigned char", _PLAIN),
    "int8": ("signed char", "signed char", _PLAIN),
    "uint8": ("unsigned char", "unsigned char", _PLAIN),
    "int16": ("short", "short", _PLAIN),
    "uint16": ("unsigned short", "unsigned short", _PLAIN),
    "int32": ("int", "int", _PLAIN),
    "uint32": ("unsigned int", "unsigned int", _PLAIN),
    "int64": ("long long", "long long", _PLAIN),
    "uint64": ("unsigned long long", "unsigned long long", _PLAIN),
    "float16": ("unsigned short", "float", _HALF),
    "bfloat16": ("unsigned short", "float", _BFLOAT),
    "float32": ("float", "float", _PLAIN),
    "float64": ("double", "double", _DOUBLE),
    "complex64": ("C", "C", _PLAIN),
    "complex128": ("C", "C", _DOUBLE_COMPLEX),
}

_SOURCE = """
struct Args {{ T* target; const T* source[{sources}]; long long count, head, packs; }};
struct __align__(16) Pack {{ T item[{width}]; }};
__device__ __forceinline__ A combine(A a, A b) {{ return ({expression}); }}
__device__ __forceinline__ void one(const Args& args, long long i) {{
  A total = load(args.source[0][i]);
  #pragma unroll
  for (int k = 1; k < {sources}; k++) total = combine(total, load(args.source[k][i]));
  args.target[i] = store(total);
}}
extern "C" __global__ void __launch_bounds__({threads}) fold(const Args args) {{
  const long long first = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  const long long all = (long long)gridDim.x * blockDim.x;
  for (long long v = first; v < args.packs; v += all) {{
    const long long at = args.head + v * {width};
    Pack in[{sources}], out;
    #pragma unroll
    for (int k = 0; k < {sources}; k++) in[k] = *reinterpret_cast<const Pack*>(args.source[k] + at);
    #pragma unroll
    for (int j = 0; j < {width}; j++) {{
      A total = load(in[0].item[j]);
      #pragma unroll
      for (int k = 1; k < {sources}; k++) total = combine(total, load(in[k].item[j]));
      out.item[j] = store(total);
    }}
    *reinterpret_cast<Pack*>(args.target + at) = out;
  }}
  const long long tail = args.head + args.packs * {width};
  for (long long i = first; i < args.head; i += all) one(args, i);
  for (long long i = tail + first; i < args.count; i += all) one(args, i);
}}
"""

_DIVIDE = """
struct Args {{ T* target; long long count; double divisor; }};
extern "C" __global__ void __launch_bounds__({threads}) divide(const Args args) {{
  const {real} divisor = {real}(args.divisor);
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < args.count;
       i += (long long)gridDim.x * blockDim.x)
    args.target[i] = store(load(args.target[i]) / divisor);
}}
"""


def prelude(dtype: np.dtype) -> str:
    """Return the types T (stored) and A (computed with) of a dtype, and the conversions load and store."""
    stored, computed, conversions = _TYPES[dtype.name]
    real = "float" if dtype.itemsize == 8 else "double"
    own = f"typedef {real} R;\n{_COMPLEX}" if dtype.kind == "c" else ""
    return f"{own}typedef {stored} T;\ntypedef {computed} A;\n{conversions}"


def width(itemsize: int) -> int:
    """Return the number of elements that one 16-byte access moves."""
    return max(16 // itemsize, 1)


def serves(op: Operator, dtype: np.dtype) -> bool:
    """Tell whether an operator on a dtype can be part of a kernel."""
    return bool(op.cuda) and dtype.name in _TYPES


def expression(op: Operator, dtype: np.dtype) -> str:
    """Return the operator as a C expression of a and b."""
    return op.cuda_bool if dtype.kind == "b" else op.cuda.replace("T(", "A(")


def fold_source(op: Operator, dtype: np.dtype, sources: int) -> str:
    """Return the source of a kernel that combines `sources` operands."""
    return prelude(dtype) + _SOURCE.format(
        sources=sources, width=width(dtype.itemsize), expression=expression(op, dtype), threads=THREADS
    )


def divide_source(dtype: np.dtype) -> str:
    """Return the source of a kernel that divides in place."""
    real = "double" if dtype.name in ("float64", "complex128") else "float"
    return prelude(dtype) + _DIVIDE.format(threads=THREADS, real=real)


@cache
def compiled(source: str, name: str, device: int) -> tuple[int, Any]:
    """Return (address of the function, module that keeps it alive), compiled for the current device."""
    import cupy

    module = cupy.RawModule(code=source, options=("-std=c++14", "-fmad=false"))
    return module.get_function(name).kernel.ptr, module
