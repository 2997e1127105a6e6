#include "kernels/target.h"

#if defined(TUTTI_KERNELS_NEON)
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/fill.h"
#include "kernels/neon/vec.h"

namespace tutti::kernels::neon {

#include "kernels/generic/layers.inl.h"

}  // namespace tutti::kernels::neon
#endif
