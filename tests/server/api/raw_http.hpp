#pragma once
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/fd.hpp"

namespace sluice::test {

/// A connection that sends exactly what a test says, right or wrong.
class RawHttp {
 public:
  struct Reply {
    int status = 0;
    std::map<std::string, std::string> headers;  ///< Names in lower case.
    std::string body;
  };

  explicit RawHttp(int port);

  /// False if the server has closed the connection.
  bool send(std::string_view bytes);
  /// Closes this side; the replies still arrive.
  void half_close();
  /// Resets the connection.
  void reset();
  /// Waits until the server has sent something. False: it has closed the connection.
  bool hears() { return !received_.empty() || receive(); }
  /// The next reply; nothing if the connection ends before.
  std::optional<Reply> reply();
  /// All that comes until the server closes the connection.
  std::string rest();
  /// Whether the server closes the connection within the limit without sending anything more.
  bool closed(std::chrono::milliseconds limit);

 private:
  bool receive();

  base::Fd socket_;
  std::string received_;
};

/// A request with its Content-Length.
std::string http_request(const std::string& method, const std::string& target,
                         const std::string& body = "", const std::string& headers = "");

}  // namespace sluice::test
