// The schemas of the OpenAPI document: one JSON object, by name.
//
// Internal to src/api.
#pragma once

#include <string>

namespace headgate::api {

[[nodiscard]] const std::string& openapi_schemas();

}  // namespace headgate::api
