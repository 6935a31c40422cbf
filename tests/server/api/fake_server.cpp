// Serves FakeService over both protocols for tests in other languages. Prints the two ports, and
// ends when its standard input does. Exit code 1: an announcement was not ended, or ended twice.
#include <iostream>

#include "fake_service.hpp"
#include "server/api/grpc_server.hpp"
#include "server/api/http_server.hpp"

int main() {
  using namespace sluice;
  test::FakeService service;
  {
    server::api::GrpcServer grpc(service, {});
    server::api::HttpServer http(service, {});
    std::cout << grpc.port() << ' ' << http.port() << std::endl;
    std::string line;
    while (std::getline(std::cin, line)) continue;
    http.stop(std::chrono::seconds(1));
    grpc.stop(std::chrono::seconds(1));
  }
  std::cout << "announcements: " << service.open_announcements() << " open, "
            << service.wrong_announcements() << " wrong" << std::endl;
  return service.open_announcements() + service.wrong_announcements() == 0 ? 0 : 1;
}
