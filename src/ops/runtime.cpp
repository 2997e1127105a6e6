#include "ops/runtime.h"

#include <mlx/compile.h>
#include <mlx/device.h>
#include <mlx/version.h>

#include <string>

#include "base/error.h"

namespace tutti::ops {

void prepare_runtime() {
  const std::string version = mlx::core::version();
  if (version != TUTTI_MLX_VERSION) {
    throw LoadError("MLX " TUTTI_MLX_VERSION " expected, found " + version + ": ./dev setup installs the right one");
  }
  mlx::core::set_default_device(mlx::core::Device::cpu);
  mlx::core::disable_compile();
}

}  // namespace tutti::ops
