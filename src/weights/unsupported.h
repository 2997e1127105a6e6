// Weight formats that this build can't read, recognised by their tensors so that they are refused by name.
#pragma once

#include "weights/checkpoint.h"

namespace tutti::weights {

// Throws LoadError with a line per format: its name and the modules stored in it. Reads names, dtypes and shapes only.
void refuse_unsupported_formats(const Checkpoint& checkpoint);

}  // namespace tutti::weights
