#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "tools/top/view.hpp"

namespace sluice::tools {

struct Column {
  std::string title;
  std::size_t width;
  bool right;
  std::function<std::string(const shm::ClientSnapshot&, const ClientRates&)> cell;
};

/// The columns that fit into `columns` of a terminal, the command last with what is left.
[[nodiscard]] std::vector<Column> choose_columns(const View& view, std::size_t columns);

/// Whether the GPU could not do what was asked for.
[[nodiscard]] bool fell_back(const shm::ClientSnapshot& client);

}  // namespace sluice::tools
