#include "kernels/target.h"

#if defined(TUTTI_KERNELS_X86)
#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/avx512/vec.h"
#include "kernels/fill.h"

TUTTI_TARGET_AVX512_BEGIN
namespace tutti::kernels::avx512 {

#include "kernels/generic/layers.inl.h"

}  // namespace tutti::kernels::avx512
TUTTI_TARGET_AVX512_END
#endif
