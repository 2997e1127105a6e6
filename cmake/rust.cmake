# rust/text (tokenizer, chat template; C ABI in rust/text/tutti_text.h) as the imported target tutti_rust.
find_program(CARGO cargo HINTS $ENV{CARGO_HOME}/bin $ENV{HOME}/.cargo/bin REQUIRED)
set(RUST_DIR ${CMAKE_SOURCE_DIR}/rust/text)
set(RUST_TARGET_DIR ${CMAKE_SOURCE_DIR}/build/rust)   # shared by all presets: one cold build
set(RUST_LIB ${RUST_TARGET_DIR}/release/libtutti_text.a)
file(GLOB rust_sources CONFIGURE_DEPENDS ${RUST_DIR}/src/*.rs)
add_custom_command(
  OUTPUT ${RUST_LIB}
  COMMAND ${CMAKE_COMMAND} -E env CARGO_TARGET_DIR=${RUST_TARGET_DIR}
          ${CARGO} build --manifest-path ${RUST_DIR}/Cargo.toml --locked --offline --release
  WORKING_DIRECTORY ${RUST_DIR}
  DEPENDS ${RUST_DIR}/Cargo.toml ${RUST_DIR}/Cargo.lock ${rust_sources}
  USES_TERMINAL VERBATIM)
add_custom_target(tutti_rust_build DEPENDS ${RUST_LIB})
add_library(tutti_rust STATIC IMPORTED GLOBAL)
set_target_properties(tutti_rust PROPERTIES IMPORTED_LOCATION ${RUST_LIB}
  INTERFACE_INCLUDE_DIRECTORIES ${RUST_DIR}
  INTERFACE_LINK_LIBRARIES "Threads::Threads;gcc_s;util;rt;m;dl")
add_dependencies(tutti_rust tutti_rust_build)
