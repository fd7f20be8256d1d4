# A run that is cancelled while the model speaks keeps what was said, as aborted.
> user_message r1 {"messageId":"m","text":"go"}
> status r1 {"phase":"thinking","detail":"m1"}
> assistant_token r1 {"text":"Well, "}
< {"type":"agent_start"}
< {"type":"turn_start"}
< {"type":"message_start","message":{"role":"user","content":[{"type":"text","text":"go"}],"timestamp":1000}}
< {"type":"message_end","message":{"role":"user","content":[{"type":"text","text":"go"}],"timestamp":1000}}
< {"type":"extension_ui_request","requestId":"setWorkingMessage-2","method":"setWorkingMessage","message":"thinking: m1"}
< {"type":"message_start","message":{"role":"assistant","content":[],"api":"","provider":"","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":3000}}
< {"type":"message_update","message":{"role":"assistant","content":[{"type":"text","text":""}],"api":"","provider":"","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":3000},"assistantMessageEvent":{"type":"text_start","contentIndex":0}}
< {"type":"message_update","message":{"role":"assistant","content":[{"type":"text","text":"Well, "}],"api":"","provider":"","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":3000},"assistantMessageEvent":{"type":"text_delta","contentIndex":0,"delta":"Well, "}}

> status r1 {"phase":"stopping","detail":"user","stopping":{"outcome":"cancelled","by":"pi"}}
> run_complete r1 {"outcome":"cancelled","summary":"cancelled by pi"}
< {"type":"extension_ui_request","requestId":"setStatus-run-4","method":"setStatus","key":"run","text":"stopping: user (pi)"}
< {"type":"message_update","message":{"role":"assistant","content":[{"type":"text","text":"Well, "}],"api":"","provider":"","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":3000},"assistantMessageEvent":{"type":"text_end","contentIndex":0,"content":"Well, "}}
< {"type":"message_end","message":{"role":"assistant","content":[{"type":"text","text":"Well, "}],"api":"","provider":"","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"aborted","errorMessage":"cancelled by pi","timestamp":3000}}
< {"type":"turn_end","message":{"role":"assistant","content":[{"type":"text","text":"Well, "}],"api":"","provider":"","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"aborted","errorMessage":"cancelled by pi","timestamp":3000},"toolResults":[]}
< {"type":"extension_ui_request","requestId":"setWorkingMessage-5","method":"setWorkingMessage","message":""}
< {"type":"agent_end","messages":[{"role":"user","content":[{"type":"text","text":"go"}],"timestamp":1000},{"role":"assistant","content":[{"type":"text","text":"Well, "}],"api":"","provider":"","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"aborted","errorMessage":"cancelled by pi","timestamp":3000}]}
