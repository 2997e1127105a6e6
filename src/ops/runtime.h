// The state of the MLX library that every step relies on.
#pragma once

namespace tutti::ops {

// Throws LoadError when the MLX library that runs is not the version this was built for (its C++ interface breaks
// between patch releases). Then fixes the CPU as default device and turns mx::compile off: on the CPU it would start a
// compiler.
void prepare_runtime();

}  // namespace tutti::ops
