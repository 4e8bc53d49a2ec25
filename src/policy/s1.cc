#include "policy/shapes.h"
namespace headgate::policy {
void read_s1_agents(const Scope&, const Node&, const Scales&, std::vector<Policy>&) {}
void read_s1_globals(const Scope&, const Node&, const Scales&, std::vector<Policy>&) {}
void read_s3(const Scope&, const Node&, std::vector<Policy>&) {}
void read_envoy(const Scope&, const Node&, std::vector<Policy>&) {}
}  // namespace headgate::policy
