# A run that fails without a word leaves an empty message that says why.
> session_started -
> user_message r1 {"messageId":"m","text":"go"}
> error r1 {"code":"MODEL_DOWN","message":"the server is down","retryable":true}
> run_complete r1 {"outcome":"failed","summary":"the server is down","headless":{"exitCodeHint":1}}
< {"type":"agent_start"}
< {"type":"turn_start"}
< {"type":"message_start","message":{"role":"user","content":[{"type":"text","text":"go"}],"timestamp":2000}}
< {"type":"message_end","message":{"role":"user","content":[{"type":"text","text":"go"}],"timestamp":2000}}
< {"type":"extension_ui_request","requestId":"notify-3","method":"notify","message":"the server is down","notifyType":"error"}
< {"type":"message_start","message":{"role":"assistant","content":[],"api":"anthropic-messages","provider":"anthropic","model":"m0","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":4000}}
< {"type":"message_end","message":{"role":"assistant","content":[],"api":"anthropic-messages","provider":"anthropic","model":"m0","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"error","errorMessage":"the server is down","timestamp":4000}}
< {"type":"turn_end","message":{"role":"assistant","content":[],"api":"anthropic-messages","provider":"anthropic","model":"m0","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"error","errorMessage":"the server is down","timestamp":4000},"toolResults":[]}
< {"type":"agent_end","messages":[{"role":"user","content":[{"type":"text","text":"go"}],"timestamp":2000},{"role":"assistant","content":[],"api":"anthropic-messages","provider":"anthropic","model":"m0","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"error","errorMessage":"the server is down","timestamp":4000}]}
