// POST /slots/{id}?action=save|restore|erase (docs/prompt-cache.md 6).
#include <fmt/core.h>

#include <algorithm>
#include <boost/json/object.hpp>
#include <cctype>
#include <charconv>
#include <utility>

#include "server/errors.hpp"
#include "server/fields.hpp"
#include "server/mailbox.hpp"
#include "server/routes.hpp"

namespace bankml {
namespace {

enum class SlotAction { save, restore, erase };

using SlotOutcome = std::variant<SlotActionResult, Failed>;

class SlotActionReply final : public PendingReply {
 public:
  SlotActionReply(CompletionService& engine, SlotAction action, std::int64_t slot, std::string file_name)
      : engine_(engine), action_(action), slot_(slot), file_name_(std::move(file_name)) {}
  ~SlotActionReply() override {
    if (!mailbox_) return;
    mailbox_->close();
    engine_.cancel(job_);
  }

  void start(std::function<void()> wake) override {
    mailbox_ = std::make_shared<Mailbox<SlotOutcome>>(std::move(wake));
    SlotActionDone done = [mailbox = mailbox_](SlotOutcome&& outcome) {
      mailbox->put(std::move(outcome), sizeof(SlotOutcome));
    };
    switch (action_) {
      case SlotAction::save:
        job_ = engine_.save_slot(slot_, file_name_, std::move(done));
        break;
      case SlotAction::restore:
        job_ = engine_.restore_slot(slot_, file_name_, std::move(done));
        break;
      case SlotAction::erase:
        job_ = engine_.erase_slot(slot_, std::move(done));
        break;
    }
  }

  ReplyPart poll() override {
    ReplyPart part;
    for (const SlotOutcome& outcome : mailbox_->take()) {
      const auto* failure = std::get_if<Failed>(&outcome);
      part.response =
          failure != nullptr ? error_response(*failure) : json_response(result(std::get<SlotActionResult>(outcome)));
    }
    return part;
  }

 private:
  boost::json::object result(const SlotActionResult& result) const {
    switch (action_) {
      case SlotAction::save:
        return {{"id_slot", slot_},
                {"filename", file_name_},
                {"n_saved", result.tokens},
                {"n_written", result.bytes},
                {"timings", {{"save_ms", result.ms}}}};
      case SlotAction::restore:
        return {{"id_slot", slot_},
                {"filename", file_name_},
                {"n_restored", result.tokens},
                {"n_read", result.bytes},
                {"timings", {{"restore_ms", result.ms}}}};
      case SlotAction::erase:
        break;
    }
    return {{"id_slot", slot_}, {"n_erased", result.tokens}};
  }

  CompletionService& engine_;
  const SlotAction action_;
  const std::int64_t slot_;
  const std::string file_name_;
  JobId job_ = 0;
  std::shared_ptr<Mailbox<SlotOutcome>> mailbox_;
};

// As C's stoi: leading blanks and a sign are taken, text after the number is ignored.
std::int64_t parse_slot(std::string_view text) {
  std::string_view digits = text;
  while (!digits.empty() && std::isspace(static_cast<unsigned char>(digits.front())) != 0) digits.remove_prefix(1);
  if (digits.starts_with('+')) digits.remove_prefix(1);
  int slot = 0;
  if (std::from_chars(digits.data(), digits.data() + digits.size(), slot).ec != std::errc()) {
    throw Error(ErrorKind::invalid_request, fmt::format("slot id: expected an integer, got '{}'", text));
  }
  return slot;
}

// Of an action that is given several times the last one counts, as with llama-server.
std::string action_name(std::string_view query) {
  std::string name;
  while (!query.empty()) {
    Request parameter;
    parameter.query = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), parameter.query.size() + 1));
    if (std::string value = parameter.query_value("action"); !value.empty()) name = std::move(value);
  }
  return name;
}

SlotAction parse_action(std::string_view name) {
  if (name == "save") return SlotAction::save;
  if (name == "restore") return SlotAction::restore;
  if (name == "erase") return SlotAction::erase;
  throw Error(ErrorKind::invalid_request, fmt::format("action: expected save, restore or erase, got '{}'", name));
}

}  // namespace

Reply post_slot_action(const RouteContext& context, const Request& request) {
  constexpr std::string_view kPrefix = "/slots/";
  if (!context.app.engine->has_slot_files()) {
    // A text that clients compare (docs/http-api.md 6).
    throw Error(ErrorKind::unsupported, "This server does not support slots action. Start it with `--slot-save-path`");
  }
  const std::string_view id = std::string_view(request.path).substr(request.path.rfind(kPrefix) + kPrefix.size());
  const std::int64_t slot = parse_slot(id);
  const SlotAction action = parse_action(action_name(request.query));
  std::string file_name;
  if (action != SlotAction::erase) {
    const boost::json::object body = parse_body(request.body);
    const Fields fields(body);
    // llama-server answers 500, not 400.
    const auto* name = fields.find("filename");
    if (name == nullptr || !name->is_string()) {
      throw Error(ErrorKind::internal, "field 'filename': a string is required");
    }
    file_name = name->get_string();
  }
  return std::make_unique<SlotActionReply>(*context.app.engine, action, slot, std::move(file_name));
}

}  // namespace bankml
