# Flags that every target of the project gets.
add_library(tutti_options INTERFACE)
# Same source, same bits: no contraction that depends on the instance of a template, no reassociation.
target_compile_options(tutti_options INTERFACE -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers -Wno-restrict -ffp-contract=off -fno-fast-math)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(tutti_options INTERFACE -Wno-psabi)   # vector types passed by value inside one library
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_options(tutti_options INTERFACE -Wthread-safety)
endif()
if(TUTTI_SANITIZE)
  target_compile_options(tutti_options INTERFACE -fsanitize=${TUTTI_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(tutti_options INTERFACE -fsanitize=${TUTTI_SANITIZE})
endif()
