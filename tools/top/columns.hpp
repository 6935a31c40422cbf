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

/// The columns that fit into a terminal of `columns`. The name is last and has what is left.
[[nodiscard]] std::vector<Column> choose_columns(const View& view, std::size_t columns);

/// Whether the policy in force is not the policy that was asked for.
[[nodiscard]] bool fell_back(const shm::ClientSnapshot& client);

}  // namespace sluice::tools
