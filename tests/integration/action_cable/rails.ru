# ActionCable of Rails, with its Redis adapter, for test_broadcasts_to_rails.py.

require "logger"
require "active_support"
require "active_support/core_ext"
require "action_cable"

module ApplicationCable
  class Connection < ActionCable::Connection::Base
  end
end

class AgentChannel < ActionCable::Channel::Base
  def subscribed
    # A Rails server would check here whether the user may see the agent.
    %w[summary nodes].each { |view| stream_from "kas:#{view}:#{params[:agent]}" }
  end
end

config = ActionCable.server.config
config.logger = Logger.new($stderr)
config.connection_class = -> { ApplicationCable::Connection }
config.allowed_request_origins = [%r{\Ahttp://127\.0\.0\.1:\d+\z}]
# As in config/cable.yml.
config.cable = {
  adapter: "redis", url: ENV.fetch("CABLE_REDIS"), channel_prefix: "gitlab_production",
}.with_indifferent_access

run ActionCable.server
