// Reads which checks a policy matches, and what its key is made of.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "policy/scope.h"

namespace headgate::policy {

// Ordered levels, each scale from low to high.
using Scales = std::vector<std::vector<std::string>>;
[[nodiscard]] Scales default_scales();
// Adds the scales of a document's `levels`.
void read_scales(const Scope& scope, const Node& node, Scales& scales);

void read_match(const Scope& scope, const Node& node, const Scales& scales, Match& match);
bool read_patterns(const Scope& scope, const Node* node, std::string_view field, Patterns& out);
void read_key(const Scope& scope, const Node& node, std::vector<KeyPart>& key);

// A rule for the attribute `name` (any of `names`) from a plain value: a list, a scalar, {min, max} or nothing.
void read_attribute(const Scope& scope, const Node& node, std::vector<std::string> names,
                    std::vector<AttributeRule>& rules);

enum class Bound : std::uint8_t { kAtMost, kAtLeast };
// A rule from a level or a number that bounds the attribute.
void read_bound(const Scope& scope, const Entry& entry, std::vector<std::string> names, Bound bound,
                const Scales& scales, std::vector<AttributeRule>& rules);

// component_type -> componentType, and the other way round.
[[nodiscard]] std::string camel_case(std::string_view name);
[[nodiscard]] std::string snake_case(std::string_view name);

}  // namespace headgate::policy
