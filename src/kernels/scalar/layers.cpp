#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/fill.h"
#include "kernels/scalar/vec.h"

namespace tutti::kernels::scalar {

#include "kernels/generic/layers.inl.h"

}  // namespace tutti::kernels::scalar
