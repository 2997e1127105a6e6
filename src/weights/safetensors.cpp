#include "weights/safetensors.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>

namespace tutti::weights {
namespace {

struct DTypeRow {
  std::string_view name;
  DType dtype;
  int bits;
};
constexpr std::array<DTypeRow, 23> kDTypes = {{
    {"F32", DType::float32, 32},        {"F16", DType::float16, 16},  {"BF16", DType::bfloat16, 16},
    {"U32", DType::uint32, 32},         {"U8", DType::uint8, 8},      {"I32", DType::int32, 32},
    {"F8_E4M3", DType::float8_e4m3, 8}, {"F64", DType::other, 64},    {"I64", DType::other, 64},
    {"U64", DType::other, 64},          {"C64", DType::other, 64},    {"I16", DType::other, 16},
    {"U16", DType::other, 16},          {"I8", DType::other, 8},      {"BOOL", DType::other, 8},
    {"F8_E5M2", DType::other, 8},       {"F8_E8M0", DType::other, 8}, {"F8_E4M3FNUZ", DType::other, 8},
    {"F8_E5M2FNUZ", DType::other, 8},   {"F4", DType::other, 4},      {"F6_E2M3", DType::other, 6},
    {"F6_E3M2", DType::other, 6},       {"E8M0", DType::other, 8},
}};

const DTypeRow* find_dtype(std::string_view name) {
  const auto* row = std::find_if(kDTypes.begin(), kDTypes.end(), [&](const DTypeRow& r) { return r.name == name; });
  return row == kDTypes.end() ? nullptr : row;
}

// What the header says of one tensor, before anything is believed.
struct RawEntry {
  std::string name;
  std::string dtype;
  std::vector<uint64_t> shape;
  std::vector<uint64_t> offsets;
  bool has_dtype = false, has_shape = false, has_offsets = false;
  std::string fault;  // the first wrong value
};

// Walks the header without building a tree. Only three levels are legal, so depth can't grow: anything else stops the
// parse.
class HeaderHandler final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<RawEntry> entries;
  std::string format;
  std::string error;                    // why the parse stopped
  std::vector<std::string> duplicates;  // tensor names that occur twice

  bool null() override { return wrong_value("null"); }
  bool boolean(bool) override { return wrong_value("a boolean"); }
  bool number_float(double, const std::string& text) override { return wrong_value("the number " + printable(text)); }
  bool binary(binary_t&) override { return wrong_value("binary data"); }
  bool number_integer(int64_t value) override { return wrong_value(fmt::format("the negative number {}", value)); }

  bool number_unsigned(uint64_t value) override {
    if (state_ != State::shape && state_ != State::offsets) return wrong_value("a number");
    std::vector<uint64_t>& list = state_ == State::shape ? entries.back().shape : entries.back().offsets;
    if (list.size() >= kMaxRank)
      return stop(fmt::format("tensor {}: a list of more than {} numbers", printable(entries.back().name), kMaxRank));
    list.push_back(value);
    return true;
  }

  bool string(std::string& value) override {
    if (state_ == State::metadata) {
      if (key_ == "format") format = value.substr(0, 16);
      return true;
    }
    if (state_ != State::entry || key_ != "dtype") return wrong_value("a string");
    entries.back().dtype = value;
    entries.back().has_dtype = true;
    return true;
  }

  bool key(std::string& value) override {
    key_ = value;
    if (state_ == State::entry) return entry_key();
    if (state_ == State::metadata) return true;
    if (entries.size() >= kMaxTensorsPerFile) return stop(fmt::format("more than {} tensors", kMaxTensorsPerFile));
    if (!names_.insert(value).second) duplicates.push_back(value);
    return true;
  }

  bool start_object(size_t) override {
    if (state_ == State::start) {
      state_ = State::top;
      return true;
    }
    if (state_ != State::top) return wrong_value("an object");
    state_ = key_ == "__metadata__" ? State::metadata : State::entry;
    if (state_ == State::entry) entries.emplace_back().name = key_;
    return true;
  }

  bool end_object() override {
    state_ = state_ == State::top ? State::done : State::top;
    return true;
  }

  bool start_array(size_t) override {
    if (state_ != State::entry || (key_ != "shape" && key_ != "data_offsets")) return wrong_value("a list");
    state_ = key_ == "shape" ? State::shape : State::offsets;
    (state_ == State::shape ? entries.back().has_shape : entries.back().has_offsets) = true;
    return true;
  }

  bool end_array() override {
    state_ = State::entry;
    return true;
  }

  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception& e) override {
    return stop(fmt::format("not valid JSON at byte {}: {}", position, printable(e.what())));
  }

 private:
  enum class State { start, top, metadata, entry, shape, offsets, done };

  bool stop(std::string why) {
    error = std::move(why);
    return false;
  }

  bool entry_key() {
    const RawEntry& entry = entries.back();
    const bool again = (key_ == "dtype" && entry.has_dtype) || (key_ == "shape" && entry.has_shape) ||
                       (key_ == "data_offsets" && entry.has_offsets);
    if (again) return stop(fmt::format("tensor {}: \"{}\" occurs twice", printable(entry.name), key_));
    if (key_ != "dtype" && key_ != "shape" && key_ != "data_offsets")
      return stop(fmt::format("tensor {}: unknown field \"{}\"", printable(entry.name), printable(key_)));
    return true;
  }

  // Bad numbers in a list spoil one tensor; anything else in the wrong place spoils the header.
  bool wrong_value(const std::string& found) {
    if (state_ == State::shape || state_ == State::offsets) {
      if (found.starts_with("an ") || found.starts_with("a list"))
        return stop(fmt::format("tensor {}: \"{}\" holds {}", printable(entries.back().name), key_, found));
      std::string& fault = entries.back().fault;
      if (fault.empty()) fault = fmt::format("\"{}\" holds {}, expected whole numbers from 0", key_, found);
      return true;
    }
    if (state_ == State::start) return stop("the header is not an object");
    if (state_ == State::top) return stop(fmt::format("{} is {}, expected an object", printable(key_), found));
    if (state_ == State::metadata)
      return stop(fmt::format("__metadata__.{} is {}, expected a string", printable(key_), found));
    return stop(fmt::format("tensor {}: \"{}\" is {}", printable(entries.back().name), printable(key_), found));
  }

  State state_ = State::start;
  std::string key_;
  std::unordered_set<std::string> names_;
};

// Elements of a shape; nullopt when the product doesn't fit.
std::optional<uint64_t> element_count(const std::vector<uint64_t>& shape) {
  uint64_t n = 1;
  for (const uint64_t d : shape) {
    if (__builtin_mul_overflow(n, d, &n)) return std::nullopt;
  }
  return n > (uint64_t{1} << 56) ? std::nullopt : std::optional(n);
}

class FileReader {
 public:
  FileReader(std::span<const std::byte> bytes, const std::string& file, Problems& problems)
      : bytes_(bytes), file_(file), problems_(problems) {}

  SafetensorsFile read() {
    SafetensorsFile result;
    HeaderHandler header;
    if (!read_header(header)) return result;
    result.format = header.format;
    for (const std::string& name : header.duplicates) problem(name, "the name occurs twice in this file");
    for (const RawEntry& raw : header.entries) {
      if (std::optional<SafetensorsEntry> entry = check_entry(raw)) result.entries.push_back(std::move(*entry));
    }
    if (beyond_ > 1) add(fmt::format("{} more tensors end beyond the end of the file", beyond_ - 1));
    if (!faulty_) check_cover(result.entries);
    return result;
  }

 private:
  void add(const std::string& what) {
    problems_.add(fmt::format("{}: {}", file_, what));
    faulty_ = true;
  }
  void problem(const std::string& name, const std::string& what) { add(fmt::format("{}: {}", printable(name), what)); }

  bool read_header(HeaderHandler& header) {
    if (bytes_.size() < 8) {
      add(fmt::format("expected a safetensors file, found {} bytes", bytes_.size()));
      return false;
    }
    uint64_t length = 0;
    for (int i = 0; i < 8; ++i) length |= static_cast<uint64_t>(bytes_[static_cast<size_t>(i)]) << (8 * i);
    if (length > kMaxHeaderBytes) {
      add(fmt::format("the header claims {} bytes, at most {} are allowed", length, kMaxHeaderBytes));
      return false;
    }
    if (length > bytes_.size() - 8) {
      add(fmt::format("the header claims {} bytes, the file has {}: truncated?", length, bytes_.size() - 8));
      return false;
    }
    data_ = bytes_.subspan(8 + length);
    const char* text = reinterpret_cast<const char*>(bytes_.data()) + 8;
    if (!nlohmann::json::sax_parse(text, text + length, &header)) {
      add("header: " + (header.error.empty() ? std::string("not valid") : header.error));
      return false;
    }
    return true;
  }

  std::optional<SafetensorsEntry> check_entry(const RawEntry& raw) {
    const auto refuse = [&](const std::string& what) {
      problem(raw.name, what);
      return std::nullopt;
    };
    if (!raw.fault.empty()) return refuse(raw.fault);
    if (!raw.has_dtype || !raw.has_shape || !raw.has_offsets) return refuse("dtype, shape or data_offsets is missing");
    const DTypeRow* dtype = find_dtype(raw.dtype);
    if (dtype == nullptr) return refuse(fmt::format("unknown dtype \"{}\"", printable(raw.dtype)));
    if (raw.offsets.size() != 2 || raw.offsets[0] > raw.offsets[1]) return refuse("data_offsets are not [begin, end]");
    const std::optional<uint64_t> elements = element_count(raw.shape);
    if (!elements) return refuse("the shape's product overflows");
    if (*elements == 0) return refuse("the tensor is empty (a dimension of 0)");
    const uint64_t bits = *elements * static_cast<uint64_t>(dtype->bits);
    const uint64_t begin = raw.offsets[0], end = raw.offsets[1];
    if (bits % 8 != 0 || end - begin != bits / 8)
      return refuse(
          fmt::format("expected {} bytes for its dtype {} and shape, found {}", bits / 8, raw.dtype, end - begin));
    if (end > data_.size()) {
      if (++beyond_ > 1) return std::nullopt;
      return refuse(
          fmt::format("expected its data up to byte {}, found {} bytes of data: truncated?", end, data_.size()));
    }
    SafetensorsEntry entry{raw.name, dtype->dtype, raw.dtype, {}, data_.subspan(begin, end - begin)};
    entry.shape.assign(raw.shape.begin(), raw.shape.end());
    return entry;
  }

  // Tensors in the order of their data: each begins where the one before ends. (The header may list them in any order.)
  void check_cover(const std::vector<SafetensorsEntry>& entries) {
    std::vector<const SafetensorsEntry*> order;
    for (const SafetensorsEntry& e : entries) order.push_back(&e);
    std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->data.data() < b->data.data(); });
    const std::byte* at = data_.data();
    for (const SafetensorsEntry* e : order) {
      if (e->data.data() < at) problem(e->name, "its data overlaps that of another tensor");
      if (e->data.data() > at)
        problem(e->name, fmt::format("{} bytes before its data belong to no tensor", e->data.data() - at));
      at = std::max(at, e->data.data() + e->data.size());
    }
    const auto rest = data_.data() + data_.size() - at;
    if (rest > 0) add(fmt::format("the last {} bytes belong to no tensor", rest));
  }

  std::span<const std::byte> bytes_;
  std::span<const std::byte> data_;
  const std::string& file_;
  Problems& problems_;
  int64_t beyond_ = 0;
  bool faulty_ = false;
};

}  // namespace

std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::float32:
      return "float32";
    case DType::float16:
      return "float16";
    case DType::bfloat16:
      return "bfloat16";
    case DType::uint32:
      return "uint32";
    case DType::uint8:
      return "uint8";
    case DType::int32:
      return "int32";
    case DType::float8_e4m3:
      return "float8_e4m3";
    case DType::other:
      break;
  }
  return "another dtype";
}

int64_t Tensor::size() const {
  int64_t n = 1;
  for (const int64_t d : shape) n *= d;
  return n;
}

SafetensorsFile read_safetensors(std::span<const std::byte> bytes, const std::string& file, Problems& problems) {
  return FileReader(bytes, file, problems).read();
}

}  // namespace tutti::weights
