#include "kernels/target.h"

#if defined(TUTTI_KERNELS_X86)
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/avx2/vec.h"
#include "kernels/fill.h"

TUTTI_TARGET_AVX2_BEGIN
namespace tutti::kernels::avx2 {

#include "kernels/generic/layers.inl.h"

}  // namespace tutti::kernels::avx2
TUTTI_TARGET_AVX2_END
#endif
