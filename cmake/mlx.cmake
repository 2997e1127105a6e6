# The MLX wheel (pip install --no-deps --target .deps mlx-cpu==VERSION) as the imported target `mlx`.
set(TUTTI_MLX_VERSION 0.32.4)
set(MLX_WHEEL_DIR ${CMAKE_SOURCE_DIR}/.deps CACHE PATH "folder that holds mlx/include and mlx/lib")
if(NOT EXISTS ${MLX_WHEEL_DIR}/mlx/lib/libmlx.so)
  message(FATAL_ERROR "MLX ${TUTTI_MLX_VERSION} is not in ${MLX_WHEEL_DIR}. ./dev setup installs it.")
endif()
find_library(OPENBLAS_LIBRARY openblas REQUIRED)
add_library(mlx SHARED IMPORTED)
set_target_properties(mlx PROPERTIES
  IMPORTED_LOCATION ${MLX_WHEEL_DIR}/mlx/lib/libmlx.so
  IMPORTED_SONAME libmlx.so)
target_include_directories(mlx SYSTEM INTERFACE ${MLX_WHEEL_DIR}/mlx/include)
target_compile_definitions(mlx INTERFACE TUTTI_MLX_VERSION="${TUTTI_MLX_VERSION}")
# OpenBLAS comes first, so that MLX's BLAS calls bind to it and not to the slow one of the wheel.
set_property(TARGET mlx PROPERTY INTERFACE_LINK_LIBRARIES "")
target_link_options(mlx INTERFACE -Wl,--no-as-needed ${OPENBLAS_LIBRARY} -Wl,--as-needed -Wl,--allow-shlib-undefined)
set(CMAKE_BUILD_RPATH ${MLX_WHEEL_DIR}/mlx/lib)
