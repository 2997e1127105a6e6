#include "base/aligned_buffer.h"

#include <sys/mman.h>

#include <new>

namespace tutti {

AlignedBuffer::AlignedBuffer(size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) {
    bytes_ = 0;
    throw std::bad_alloc();
  }
  constexpr size_t kHugePage = size_t{2} << 20;
  if (bytes >= kHugePage) madvise(p, bytes, MADV_HUGEPAGE);
  data_ = p;
}

AlignedBuffer::~AlignedBuffer() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace tutti
