# The question whether a run may go on is a selection; the model hears nothing of it.
> user_message r1 {"messageId":"m","text":"go"}
> tool_call r1 {"toolName":"raise_budget","callId":"b1","args":{"of":"turns"}}
> approval_required r1 {"approvalId":"g1","callId":"b1","kind":"budget","title":"Raise the budget","summary":"1 turn","details":{"of":"turns"},"choices":["raise","stop"]}
< {"type":"agent_start"}
< {"type":"turn_start"}
< {"type":"message_start","message":{"role":"user","content":[{"type":"text","text":"go"}],"timestamp":1000}}
< {"type":"message_end","message":{"role":"user","content":[{"type":"text","text":"go"}],"timestamp":1000}}
< {"type":"extension_ui_request","requestId":"g1","method":"select","title":"Raise the budget","message":"1 turn","options":["raise","stop"],"kind":"budget","details":{"of":"turns"},"timeout":60000}

> approval_received r1 {"approvalId":"g1","choice":"raise"}
> status r1 {"phase":"started","detail":"raise_budget","callId":"b1"}
> tool_result r1 {"toolName":"raise_budget","callId":"b1"}
< {"type":"extension_ui_request","requestId":"setStatus-g1-4","method":"setStatus","key":"g1","text":"approved by cli"}

> assistant_token r1 {"text":"On."}
> usage r1
> run_complete r1
< {"type":"message_start","message":{"role":"assistant","content":[],"api":"","provider":"","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":7000}}
< {"type":"message_update","message":{"role":"assistant","content":[{"type":"text","text":""}],"api":"","provider":"","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":7000},"assistantMessageEvent":{"type":"text_start","contentIndex":0}}
< {"type":"message_update","message":{"role":"assistant","content":[{"type":"text","text":"On."}],"api":"","provider":"","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":7000},"assistantMessageEvent":{"type":"text_delta","contentIndex":0,"delta":"On."}}
< {"type":"message_update","message":{"role":"assistant","content":[{"type":"text","text":"On."}],"api":"","provider":"","model":"m1","usage":{"input":10,"output":2,"cacheRead":0,"cacheWrite":0,"totalTokens":12,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":7000},"assistantMessageEvent":{"type":"text_end","contentIndex":0,"content":"On."}}
< {"type":"message_end","message":{"role":"assistant","content":[{"type":"text","text":"On."}],"api":"","provider":"","model":"m1","usage":{"input":10,"output":2,"cacheRead":0,"cacheWrite":0,"totalTokens":12,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":7000}}
< {"type":"turn_end","message":{"role":"assistant","content":[{"type":"text","text":"On."}],"api":"","provider":"","model":"m1","usage":{"input":10,"output":2,"cacheRead":0,"cacheWrite":0,"totalTokens":12,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":7000},"toolResults":[]}
< {"type":"agent_end","messages":[{"role":"user","content":[{"type":"text","text":"go"}],"timestamp":1000},{"role":"assistant","content":[{"type":"text","text":"On."}],"api":"","provider":"","model":"m1","usage":{"input":10,"output":2,"cacheRead":0,"cacheWrite":0,"totalTokens":12,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":7000}]}
