#include <algorithm>
#include <cctype>

#include "predictor/source/kernel_reader.hpp"

namespace sluice::predictor {
namespace {

/// The element type of an array or a pointer, without a vector's width.
std::int64_t bytes_of(std::string_view type) {
  if (type.starts_with("double") || type.starts_with("int64_t") || type.starts_with("long"))
    return 8;
  if (type.starts_with("half") || type.starts_with("short")) return 2;
  if (type.starts_with("bool") || type.starts_with("uchar") || type.starts_with("int8_t") ||
      type.starts_with("signed char") || type.starts_with("unsigned char")) {
    return 1;
  }
  return 4;
}

bool is_vector_of_integers(std::string_view type) {
  return type == "int2" || type == "int3" || type == "int4";
}

/// The names of the parameters of a kernel, with their types.
template <class Take>
void for_each_parameter(std::string_view signature, Take take) {
  std::size_t begin = 0;
  while (begin < signature.size()) {
    std::size_t end = signature.find(',', begin);
    if (end == std::string_view::npos) end = signature.size();
    std::string_view parameter = signature.substr(begin, end - begin);
    while (parameter.starts_with(' ')) parameter.remove_prefix(1);
    const std::size_t name = parameter.find_last_of(" *");
    if (name != std::string_view::npos && parameter.find('*') != std::string_view::npos) {
      take(parameter.substr(name + 1), parameter);
    }
    begin = end + 1;
  }
}

}  // namespace

void KernelReader::declare_parameters(std::string_view signature) {
  for_each_parameter(signature, [this](std::string_view name, std::string_view type) {
    arrays_[name] = {Memory::kGlobal, bytes_of(type)};
  });
}

/// "[__shared__] [alignas(64)] TYPE NAME[N];", "TYPE NAME;", "TYPE NAME = VALUE;"
bool KernelReader::declare(std::string_view line) {
  const std::string_view whole = line;
  for (const std::string_view word : {"extern ", "__shared__ ", "volatile ", "const "}) {
    if (line.starts_with(word)) line.remove_prefix(word.size());
  }
  if (line.starts_with("alignas(")) {
    line.remove_prefix(std::min(line.find(") "), line.size() - 2) + 2);
  }
  const std::size_t space = line.find(' ');
  if (space == 0 || space == std::string_view::npos) return whole.size() != line.size();
  const std::string_view type = line.substr(0, space);
  if (!std::ranges::all_of(type, is_name) ||
      std::isdigit(static_cast<unsigned char>(type[0])) != 0) {
    return false;
  }
  const std::string_view rest = line.substr(space + 1);
  const std::size_t end = std::min(rest.find_first_of(" =[;"), rest.size());
  const std::string_view name = rest.substr(0, end);
  if (name.empty() || !std::ranges::all_of(name, is_name)) return false;
  if (rest.substr(end).starts_with('[')) {
    declare_array(line, whole.find("__shared__") == std::string_view::npos ? "local" : "shared");
    return true;
  }
  const std::size_t equals = rest.find(" = ");
  if (is_vector_of_integers(type)) integer_vectors_.insert(name);
  if (equals == std::string_view::npos) return true;
  std::string_view value = rest.substr(equals + 3);
  if (value.ends_with(';')) value.remove_suffix(1);
  if (is_vector_of_integers(type)) {
    declare_vector(name, value);
  } else if (type == "int" || type == "int64_t" || type == "bool" || type == "uint" ||
             type == "long") {
    indices_.define(name, value);
  } else {
    assign(name, rest.substr(equals + 3));
  }
  return true;
}

/// "TYPE NAME[N];"
void KernelReader::declare_array(std::string_view line, std::string_view memory) {
  const std::size_t space = line.find(' ');
  const std::size_t open = line.find('[');
  const std::string_view type = line.substr(0, space);
  const double elements = to_number(line.substr(open + 1));
  const bool shared = memory == "shared";
  arrays_[line.substr(space + 1, open - space - 1)] = {shared ? Memory::kShared : Memory::kLocal,
                                                       bytes_of(type)};
  (shared ? counts_.shared_bytes : counts_.local_bytes) +=
      elements * static_cast<double>(bytes_of(type));
}

/// "make_int4(A, B, C, D)", or another vector.
void KernelReader::declare_vector(std::string_view name, std::string_view value) {
  // Names such as "v__1.x" are views, so they are taken from a set that keeps them.
  static constexpr std::string_view kParts = "xyzw";
  const auto part_of = [this](std::string_view vector, char part) {
    return std::string_view(*component_names_.insert(std::string(vector) + '.' + part).first);
  };
  if (!value.starts_with("make_int")) {
    for (const char part : kParts) indices_.define(part_of(name, part), part_of(value, part));
    return;
  }
  const std::size_t open = value.find('(');
  std::size_t begin = open + 1;
  int depth = 0;
  std::size_t part = 0;
  for (std::size_t i = begin; i < value.size() && part < kParts.size(); ++i) {
    if (value[i] == '(') ++depth;
    if ((value[i] == ',' || value[i] == ')') && depth == 0) {
      indices_.define(part_of(name, kParts[part++]), value.substr(begin, i - begin));
      begin = i + 1;
      while (begin < value.size() && value[begin] == ' ') ++begin;
    }
    if (value[i] == ')') --depth;
  }
}

}  // namespace sluice::predictor
