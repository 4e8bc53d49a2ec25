#include "store/redis/charge_script.h"
#include "store/redis/script_text.h"

namespace headgate::store::redis {
namespace {

// What is told about one cell: that units come back, that a hold is over or goes on. Answers 0 where that was so.
constexpr std::string_view kTellText = R"lua(
return pack('<Bdd', give_back(KEYS[1], A, 18, op, lease), now, 1)
)lua";

// Puts another cell in the place of one that is still as it was.
constexpr std::string_view kReplaceText = R"lua(
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] == '' then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
end
return 1
)lua";

}  // namespace

const Script& tell_script() {
  static const std::string kText = join_text({kTimeText, kTermsText, kLogText, kGiveBackText, kTellText});
  static const Script kScript = make_script(kText);
  return kScript;
}

const Script& replace_script() {
  static const std::string kText = std::string(kReplaceText);
  static const Script kScript = make_script(kText);
  return kScript;
}

}  // namespace headgate::store::redis
