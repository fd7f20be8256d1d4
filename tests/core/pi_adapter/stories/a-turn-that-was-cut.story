# Half a sentence that is said again does not count; what it used does, and is told nowhere.
> user_message r1 {"messageId":"m","text":"go"}
> assistant_token r1 {"text":"Half a"}
> warning r1 {"code":"MODEL_TURN_CUT","message":"the connection broke; it is asked again"}
> usage r1 {"inputTokens":5}
< {"type":"agent_start"}
< {"type":"turn_start"}
< {"type":"message_start","message":{"role":"user","content":[{"type":"text","text":"go"}],"timestamp":1000}}
< {"type":"message_end","message":{"role":"user","content":[{"type":"text","text":"go"}],"timestamp":1000}}
< {"type":"message_start","message":{"role":"assistant","content":[],"api":"","provider":"","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":2000}}
< {"type":"message_update","message":{"role":"assistant","content":[{"type":"text","text":""}],"api":"","provider":"","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":2000},"assistantMessageEvent":{"type":"text_start","contentIndex":0}}
< {"type":"message_update","message":{"role":"assistant","content":[{"type":"text","text":"Half a"}],"api":"","provider":"","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":2000},"assistantMessageEvent":{"type":"text_delta","contentIndex":0,"delta":"Half a"}}
< {"type":"message_update","message":{"role":"assistant","content":[{"type":"text","text":"Half a"}],"api":"","provider":"","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":2000},"assistantMessageEvent":{"type":"text_end","contentIndex":0,"content":"Half a"}}
< {"type":"message_end","message":{"role":"assistant","content":[{"type":"text","text":"Half a"}],"api":"","provider":"","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"error","errorMessage":"the connection broke; it is asked again","timestamp":2000}}
< {"type":"turn_end","message":{"role":"assistant","content":[{"type":"text","text":"Half a"}],"api":"","provider":"","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"error","errorMessage":"the connection broke; it is asked again","timestamp":2000},"toolResults":[]}
< {"type":"extension_ui_request","requestId":"notify-3","method":"notify","message":"the connection broke; it is asked again","notifyType":"warning"}

> assistant_token r1 {"text":"Whole."}
> assistant_done r1 {"messageId":"a1"}
> usage r1
> run_complete r1
< {"type":"turn_start"}
< {"type":"message_start","message":{"role":"assistant","content":[],"api":"","provider":"","model":"m1","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":5000}}
< {"type":"message_update","message":{"role":"assistant","content":[{"type":"text","text":""}],"api":"","provider":"","model":"m1","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":5000},"assistantMessageEvent":{"type":"text_start","contentIndex":0}}
< {"type":"message_update","message":{"role":"assistant","content":[{"type":"text","text":"Whole."}],"api":"","provider":"","model":"m1","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":5000},"assistantMessageEvent":{"type":"text_delta","contentIndex":0,"delta":"Whole."}}
< {"type":"message_update","message":{"role":"assistant","content":[{"type":"text","text":"Whole."}],"api":"","provider":"","model":"m1","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":5000},"assistantMessageEvent":{"type":"text_end","contentIndex":0,"content":"Whole."}}
< {"type":"message_end","message":{"role":"assistant","content":[{"type":"text","text":"Whole."}],"api":"","provider":"","model":"m1","usage":{"input":10,"output":2,"cacheRead":0,"cacheWrite":0,"totalTokens":12,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":5000}}
< {"type":"turn_end","message":{"role":"assistant","content":[{"type":"text","text":"Whole."}],"api":"","provider":"","model":"m1","usage":{"input":10,"output":2,"cacheRead":0,"cacheWrite":0,"totalTokens":12,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":5000},"toolResults":[]}
< {"type":"agent_end","messages":[{"role":"user","content":[{"type":"text","text":"go"}],"timestamp":1000},{"role":"assistant","content":[{"type":"text","text":"Whole."}],"api":"","provider":"","model":"m1","usage":{"input":10,"output":2,"cacheRead":0,"cacheWrite":0,"totalTokens":12,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":5000}]}
