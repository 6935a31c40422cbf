#include "predictor/source/index_value.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string>

#include "predictor/source/references.hpp"

namespace sluice::predictor {
namespace {

/// Sums and products wrap around, as in two's complement: the text may be anybody's.
constexpr std::int64_t wrapped(std::uint64_t value) { return static_cast<std::int64_t>(value); }
constexpr std::uint64_t bits(std::int64_t value) { return static_cast<std::uint64_t>(value); }

/// By 0 as a GPU does not trap; by -1 because the least number has no counterpart.
constexpr std::int64_t quotient(std::int64_t a, std::int64_t b) {
  if (b == 0) return 0;
  return b == -1 ? wrapped(-bits(a)) : a / b;
}
constexpr std::int64_t remainder(std::int64_t a, std::int64_t b) {
  return b == 0 || b == -1 ? 0 : a % b;
}

struct Operator {
  std::string_view text;
  int rank;  ///< Binds the stronger, the larger it is.
  std::int64_t (*apply)(std::int64_t, std::int64_t);
};

constexpr std::array<Operator, 17> kOperators{{
    {"||", 1, [](std::int64_t a, std::int64_t b) -> std::int64_t { return a != 0 || b != 0; }},
    {"&&", 2, [](std::int64_t a, std::int64_t b) -> std::int64_t { return a != 0 && b != 0; }},
    {"==", 6, [](std::int64_t a, std::int64_t b) -> std::int64_t { return a == b; }},
    {"!=", 6, [](std::int64_t a, std::int64_t b) -> std::int64_t { return a != b; }},
    {"<=", 7, [](std::int64_t a, std::int64_t b) -> std::int64_t { return a <= b; }},
    {">=", 7, [](std::int64_t a, std::int64_t b) -> std::int64_t { return a >= b; }},
    {"<<", 8, [](std::int64_t a, std::int64_t b) { return wrapped(bits(a) << (b & 63)); }},
    {">>", 8, [](std::int64_t a, std::int64_t b) { return a >> (b & 63); }},
    {"|", 3, [](std::int64_t a, std::int64_t b) { return a | b; }},
    {"^", 4, [](std::int64_t a, std::int64_t b) { return a ^ b; }},
    {"&", 5, [](std::int64_t a, std::int64_t b) { return a & b; }},
    {"<", 7, [](std::int64_t a, std::int64_t b) -> std::int64_t { return a < b; }},
    {">", 7, [](std::int64_t a, std::int64_t b) -> std::int64_t { return a > b; }},
    {"+", 9, [](std::int64_t a, std::int64_t b) { return wrapped(bits(a) + bits(b)); }},
    {"-", 9, [](std::int64_t a, std::int64_t b) { return wrapped(bits(a) - bits(b)); }},
    {"*", 10, [](std::int64_t a, std::int64_t b) { return wrapped(bits(a) * bits(b)); }},
    {"/", 10, quotient},
}};
constexpr Operator kRemainder{"%", 10, remainder};

/// An expression that is nested deeper is none that TVM writes, or needs itself. TVM's have 17
/// levels; a level takes up to 30 KB of the stack.
constexpr int kMostDepth = 64;

/// One level, of one expression or of those that its variables stand for.
class Level {
 public:
  explicit Level(int& depth) : depth_(depth) {
    if (depth_ == kMostDepth) throw NotAnIndex("it is nested too deep");
    ++depth_;
  }
  ~Level() { --depth_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  int& depth_;
};

}  // namespace

/// Recursive descent over the text of an expression.
class IndexParser {
 public:
  IndexParser(Indices& indices, std::string_view text) : indices_(indices), text_(text) {}

  IndexValue parse() {
    IndexValue value = choice();
    skip();
    if (at_ != text_.size()) fail();
    return value;
  }

 private:
  [[noreturn]] void fail() const { throw NotAnIndex(std::string(text_)); }

  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(std::string_view wanted) {
    skip();
    if (!text_.substr(at_).starts_with(wanted)) return false;
    at_ += wanted.size();
    return true;
  }
  void need(std::string_view wanted) {
    if (!take(wanted)) fail();
  }

  IndexValue choice() {
    IndexValue condition = binary(1);
    if (!take("?")) return condition;
    IndexValue yes = choice();
    need(":");
    const IndexValue no = choice();
    for (std::size_t i = 0; i < yes.lanes.size(); ++i) {
      if (condition.lanes[i] == 0) yes.lanes[i] = no.lanes[i];
    }
    yes.loops |= condition.loops | no.loops;
    return yes;
  }

  const Operator* next_operator(int least) {
    skip();
    const std::string_view rest = text_.substr(at_);
    if (rest.starts_with('%')) return &kRemainder;
    const auto found = std::ranges::find_if(
        kOperators, [&](const Operator& each) { return rest.starts_with(each.text); });
    return found == kOperators.end() || found->rank < least ? nullptr : &*found;
  }

  IndexValue binary(int least) {
    IndexValue left = unary();
    while (const Operator* const found = next_operator(least)) {
      if (found->rank < least) break;
      at_ += found->text.size();
      const IndexValue right = binary(found->rank + 1);
      for (std::size_t i = 0; i < left.lanes.size(); ++i) {
        left.lanes[i] = found->apply(left.lanes[i], right.lanes[i]);
      }
      left.loops |= right.loops;
    }
    return left;
  }

  IndexValue unary() {
    const Level level(indices_.depth_);
    if (take("-")) return changed([](std::int64_t x) { return wrapped(-bits(x)); });
    if (take("!")) return changed([](std::int64_t x) -> std::int64_t { return x == 0; });
    if (take("~")) return changed([](std::int64_t x) { return ~x; });
    for (const std::string_view cast :
         {"(int)", "(int64_t)", "(long long)", "(bool)", "(long)", "(uint)", "(unsigned int)"}) {
      if (take(cast)) return unary();
    }
    if (take("(")) {
      IndexValue value = choice();
      need(")");
      return value;
    }
    return primary();
  }

  template <class Change>
  IndexValue changed(Change change) {
    IndexValue value = unary();
    for (auto& lane : value.lanes) lane = change(lane);
    return value;
  }

  IndexValue primary() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && (is_name(text_[at_]) || text_[at_] == '.')) ++at_;
    const std::string_view word = text_.substr(begin, at_ - begin);
    if (word.empty()) fail();
    if (std::isdigit(static_cast<unsigned char>(word[0])) != 0) return number(word);
    if (word == "min" || word == "max") return extreme(word == "min");
    if (at_ < text_.size() && (text_[at_] == '(' || text_[at_] == '[')) fail();
    return indices_.variable(word);
  }

  IndexValue number(std::string_view word) {
    std::int64_t parsed = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), parsed);
    const std::string_view rest(end, static_cast<std::size_t>(word.data() + word.size() - end));
    if (error != std::errc{} || rest.find_first_not_of("uUlL") != std::string_view::npos) fail();
    IndexValue value;
    value.lanes.fill(parsed);
    return value;
  }

  IndexValue extreme(bool least) {
    need("(");
    IndexValue left = choice();
    need(",");
    const IndexValue right = choice();
    need(")");
    for (std::size_t i = 0; i < left.lanes.size(); ++i) {
      left.lanes[i] =
          least ? std::min(left.lanes[i], right.lanes[i]) : std::max(left.lanes[i], right.lanes[i]);
    }
    left.loops |= right.loops;
    return left;
  }

  Indices& indices_;
  std::string_view text_;
  std::size_t at_ = 0;
};

namespace {

/// The text in front of " + N)" and N, for a text "(... + N)": unrolled code differs in N only.
std::pair<std::string_view, std::int64_t> without_constant(std::string_view text) {
  if (!text.starts_with('(') || !text.ends_with(')')) return {text, 0};
  const std::size_t plus = text.rfind(" + ");
  if (plus == std::string_view::npos) return {text, 0};
  const std::string_view digits = text.substr(plus + 3, text.size() - plus - 4);
  std::int64_t constant = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), constant);
  if (error != std::errc{} || end != digits.data() + digits.size()) return {text, 0};
  return {text.substr(1, plus - 1), constant};
}

bool is_balanced(std::string_view text) {
  int depth = 0;
  for (const char c : text) {
    if (c == '(') ++depth;
    if (c == ')' && --depth < 0) return false;
  }
  return depth == 0;
}

}  // namespace

void Indices::forget(std::string_view name) {
  const bool known = variables_.erase(name) + expressions_.erase(name) > 0;
  if (!known) return;
  // Another value of the same name: what was made of the old one is wrong now.
  ++generation_;
  values_.clear();
  std::erase_if(variables_, [&](const auto& each) { return expressions_.contains(each.first); });
}

void Indices::set(std::string_view name, const IndexValue& value) {
  forget(name);
  variables_.insert_or_assign(name, value);
}

void Indices::define(std::string_view name, std::string_view expression) {
  const auto known = expressions_.find(name);
  if (known != expressions_.end() && known->second == expression) return;
  forget(name);
  expressions_.insert_or_assign(name, expression);
}

const IndexValue& Indices::variable(std::string_view name) {
  if (const auto known = variables_.find(name); known != variables_.end()) return known->second;
  const auto expression = expressions_.find(name);
  if (expression == expressions_.end()) throw NotAnIndex(std::string(name));
  const IndexValue found = IndexParser(*this, expression->second).parse();
  return variables_.insert_or_assign(name, found).first->second;
}

const IndexValue& Indices::value(std::string_view expression) {
  if (const auto known = values_.find(expression); known != values_.end()) return known->second;
  const auto [rest, constant] = without_constant(expression);
  if (rest.size() == expression.size() || !is_balanced(rest)) {
    return values_.emplace(expression, IndexParser(*this, expression).parse()).first->second;
  }
  const Level level(depth_);
  IndexValue found = value(rest);
  for (auto& lane : found.lanes) lane = wrapped(bits(lane) + bits(constant));
  return values_.emplace(expression, found).first->second;
}

}  // namespace sluice::predictor
