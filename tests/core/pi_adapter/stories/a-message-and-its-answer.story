# A model that thinks and answers: what comes in one batch is one update.
> session_started -
> user_message r1 {"messageId":"m","text":"Hi \"there\""}
< {"type":"agent_start"}
< {"type":"turn_start"}
< {"type":"message_start","message":{"role":"user","content":[{"type":"text","text":"Hi \"there\""}],"timestamp":2000}}
< {"type":"message_end","message":{"role":"user","content":[{"type":"text","text":"Hi \"there\""}],"timestamp":2000}}

> status r1 {"phase":"thinking"}
> thinking_token r1 {"text":"A greet"}
> thinking_token r1 {"text":"ing."}
> assistant_token r1 {"text":"Hel"}
> assistant_token r1 {"text":"lo\n"}
< {"type":"extension_ui_request","requestId":"setWorkingMessage-3","method":"setWorkingMessage","message":"thinking"}
< {"type":"message_start","message":{"role":"assistant","content":[],"api":"anthropic-messages","provider":"anthropic","model":"m0","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":4000}}
< {"type":"message_update","message":{"role":"assistant","content":[{"type":"thinking","thinking":""}],"api":"anthropic-messages","provider":"anthropic","model":"m0","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":4000},"assistantMessageEvent":{"type":"thinking_start","contentIndex":0}}
< {"type":"message_update","message":{"role":"assistant","content":[{"type":"thinking","thinking":"A greeting."}],"api":"anthropic-messages","provider":"anthropic","model":"m0","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":4000},"assistantMessageEvent":{"type":"thinking_delta","contentIndex":0,"delta":"A greeting."}}
< {"type":"message_update","message":{"role":"assistant","content":[{"type":"thinking","thinking":"A greeting."}],"api":"anthropic-messages","provider":"anthropic","model":"m0","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":4000},"assistantMessageEvent":{"type":"thinking_end","contentIndex":0,"content":"A greeting."}}
< {"type":"message_update","message":{"role":"assistant","content":[{"type":"thinking","thinking":"A greeting."},{"type":"text","text":""}],"api":"anthropic-messages","provider":"anthropic","model":"m0","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":4000},"assistantMessageEvent":{"type":"text_start","contentIndex":1}}
< {"type":"message_update","message":{"role":"assistant","content":[{"type":"thinking","thinking":"A greeting."},{"type":"text","text":"Hello\n"}],"api":"anthropic-messages","provider":"anthropic","model":"m0","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":4000},"assistantMessageEvent":{"type":"text_delta","contentIndex":1,"delta":"Hello\n"}}

> assistant_token r1 {"text":"you"}
< {"type":"message_update","message":{"role":"assistant","content":[{"type":"thinking","thinking":"A greeting."},{"type":"text","text":"Hello\nyou"}],"api":"anthropic-messages","provider":"anthropic","model":"m0","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":4000},"assistantMessageEvent":{"type":"text_delta","contentIndex":1,"delta":"you"}}

> assistant_done r1 {"messageId":"a1"}
> usage r1 {"inputTokens":100,"outputTokens":20,"cacheReadTokens":60,"cacheWriteTokens":10,"costMicroUsd":1500}
> run_complete r1
< {"type":"message_update","message":{"role":"assistant","content":[{"type":"thinking","thinking":"A greeting."},{"type":"text","text":"Hello\nyou"}],"api":"anthropic-messages","provider":"anthropic","model":"m0","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":4000},"assistantMessageEvent":{"type":"text_end","contentIndex":1,"content":"Hello\nyou"}}
< {"type":"message_end","message":{"role":"assistant","content":[{"type":"thinking","thinking":"A greeting."},{"type":"text","text":"Hello\nyou"}],"api":"anthropic-messages","provider":"anthropic","model":"m1","usage":{"input":30,"output":20,"cacheRead":60,"cacheWrite":10,"totalTokens":120,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0015}},"stopReason":"stop","timestamp":4000}}
< {"type":"turn_end","message":{"role":"assistant","content":[{"type":"thinking","thinking":"A greeting."},{"type":"text","text":"Hello\nyou"}],"api":"anthropic-messages","provider":"anthropic","model":"m1","usage":{"input":30,"output":20,"cacheRead":60,"cacheWrite":10,"totalTokens":120,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0015}},"stopReason":"stop","timestamp":4000},"toolResults":[]}
< {"type":"extension_ui_request","requestId":"setWorkingMessage-11","method":"setWorkingMessage","message":""}
< {"type":"agent_end","messages":[{"role":"user","content":[{"type":"text","text":"Hi \"there\""}],"timestamp":2000},{"role":"assistant","content":[{"type":"thinking","thinking":"A greeting."},{"type":"text","text":"Hello\nyou"}],"api":"anthropic-messages","provider":"anthropic","model":"m1","usage":{"input":30,"output":20,"cacheRead":60,"cacheWrite":10,"totalTokens":120,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0015}},"stopReason":"stop","timestamp":4000}]}
