-- What wrk sends, and the expected responses. Arguments: a mode, and the arguments of that mode.
--   feed                   pages of random feeds, newest first
--   get PATH STATUS [ETAG] one document, complete or unchanged
--   post FILE SKIP         one event per line of the file: a signature, a space, the event
local threads = {}
local SERVICE = "at://did:web:cards.example/app.bsky.feed.generator/"
local SKELETON = "/functions/getFeedSkeleton?limit=50&feed="
local FEEDS = {
  "trade-listings", "collection-posts", "fresh-pulls", "showcase", "journals", "card-reviews",
}
-- concurrent readers, each at its own place in a feed
local READERS = 100

function setup(thread)
  thread:set("wrong", 0)
  thread:set("first_wrong", "")
  table.insert(threads, thread)
end

local function is_wrong(status, body)
  wrong = wrong + 1
  if first_wrong == "" then first_wrong = status .. " " .. (body or ""):sub(1, 200) end
end

local modes = {}

function modes.feed()
  local pages = {}
  math.randomseed(1)
  function request()
    local at = math.random(READERS)
    local path = pages[at] or SKELETON .. SERVICE .. FEEDS[math.random(#FEEDS)]
    pages[at] = nil
    return wrk.format("GET", path)
  end
  function response(status, _, body)
    -- an item's key starts with the number of its feed
    local feed = tonumber(body:match("feed%.post/(%d)"))
    local cursor = body:match('"cursor":"([%w_-]+)"')
    if status ~= 200 or not (feed and cursor) then return is_wrong(status, body) end
    pages[math.random(READERS)] = SKELETON .. SERVICE .. FEEDS[feed] .. "&cursor=" .. cursor
  end
end

function modes.get(path, expected, etag)
  local asked = wrk.format("GET", path, { ["If-None-Match"] = etag })
  function request() return asked end
  function response(status, _, body)
    if status ~= tonumber(expected) then is_wrong(status, body) end
  end
end

function modes.post(file, skip)
  local lines = io.lines(file)
  for _ = 1, tonumber(skip) do lines() end
  local headers = { ["Content-Type"] = "application/json" }
  function request()
    local signature, event = (lines() or "none {}"):match("^(%S+) (.*)$")
    headers["X-Service-Verifier-Signature"] = signature
    return wrk.format("POST", "/functions/age-verifier-webhook", headers, event)
  end
  function response(status, _, body)
    local is_new = body:find('"status":"applied"', 1, true)
    if status ~= 200 or not is_new then is_wrong(status, body) end
  end
end

function init(args)
  local mode = table.remove(args, 1)
  modes[mode](unpack(args))
end

function done(summary, latency)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.timeout
  local first = ""
  for _, thread in ipairs(threads) do
    failed = failed + thread:get("wrong")
    if first == "" then first = thread:get("first_wrong") end
  end
  io.write(string.format(
    "figures %d %d %d %d %d %s\n", summary.requests, summary.duration,
    latency:percentile(50), latency:percentile(99), failed, first
  ))
end
