# More than two answers are a selection; the daemon came back in the middle of a call.
> user_message r1 {"messageId":"m","text":"go"}
> usage r1
> tool_call r1 {"toolName":"sandbox_exec","callId":"c1","args":{"command":"make"}}
> status r1 {"phase":"started","detail":"sandbox_exec","callId":"c1"}
< {"type":"agent_start"}
< {"type":"turn_start"}
< {"type":"message_start","message":{"role":"user","content":[{"type":"text","text":"go"}],"timestamp":1000}}
< {"type":"message_end","message":{"role":"user","content":[{"type":"text","text":"go"}],"timestamp":1000}}
< {"type":"message_start","message":{"role":"assistant","content":[],"api":"","provider":"","model":"m1","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":2000}}
< {"type":"message_update","message":{"role":"assistant","content":[{"type":"toolCall","id":"c1","name":"sandbox_exec","arguments":{"command":"make"}}],"api":"","provider":"","model":"m1","usage":{"input":10,"output":2,"cacheRead":0,"cacheWrite":0,"totalTokens":12,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"toolUse","timestamp":2000},"assistantMessageEvent":{"type":"toolcall_start","contentIndex":0}}
< {"type":"message_update","message":{"role":"assistant","content":[{"type":"toolCall","id":"c1","name":"sandbox_exec","arguments":{"command":"make"}}],"api":"","provider":"","model":"m1","usage":{"input":10,"output":2,"cacheRead":0,"cacheWrite":0,"totalTokens":12,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"toolUse","timestamp":2000},"assistantMessageEvent":{"type":"toolcall_end","contentIndex":0,"toolCall":{"type":"toolCall","id":"c1","name":"sandbox_exec","arguments":{"command":"make"}}}}
< {"type":"message_end","message":{"role":"assistant","content":[{"type":"toolCall","id":"c1","name":"sandbox_exec","arguments":{"command":"make"}}],"api":"","provider":"","model":"m1","usage":{"input":10,"output":2,"cacheRead":0,"cacheWrite":0,"totalTokens":12,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"toolUse","timestamp":2000}}
< {"type":"tool_execution_start","toolCallId":"c1","toolName":"sandbox_exec","args":{"command":"make"}}

> run_recovered r1 {"found":"unknown"}
> approval_required r1 {"approvalId":"g1","callId":"c1","kind":"unknown","choices":["run_again","skip","stop"]}
< {"type":"extension_ui_request","requestId":"notify-5","method":"notify","message":"the daemon restarted and resumes the run","notifyType":"info"}
< {"type":"extension_ui_request","requestId":"g1","method":"select","title":"Approve command","message":"ls","options":["run_again","skip","stop"],"kind":"unknown","details":{"risk":"low"},"timeout":60000}

> approval_received r1 {"approvalId":"g1","choice":"run_again"}
> status r1 {"phase":"started","detail":"sandbox_exec","callId":"c1"}
> tool_result r1 {"toolName":"sandbox_exec","callId":"c1","status":"skipped","isError":true}
> run_complete r1
< {"type":"extension_ui_request","requestId":"setStatus-g1-7","method":"setStatus","key":"g1","text":"approved by cli"}
< {"type":"tool_execution_start","toolCallId":"c1","toolName":"sandbox_exec","args":{"command":"make"}}
< {"type":"tool_execution_end","toolCallId":"c1","toolName":"sandbox_exec","result":{"content":[{"type":"text","text":"the user chose to go on without it"}],"details":{"durationMs":5}},"isError":true}
< {"type":"message_start","message":{"role":"toolResult","toolCallId":"c1","toolName":"sandbox_exec","content":[{"type":"text","text":"the user chose to go on without it"}],"details":{"durationMs":5},"isError":true,"timestamp":9000}}
< {"type":"message_end","message":{"role":"toolResult","toolCallId":"c1","toolName":"sandbox_exec","content":[{"type":"text","text":"the user chose to go on without it"}],"details":{"durationMs":5},"isError":true,"timestamp":9000}}
< {"type":"turn_end","message":{"role":"assistant","content":[{"type":"toolCall","id":"c1","name":"sandbox_exec","arguments":{"command":"make"}}],"api":"","provider":"","model":"m1","usage":{"input":10,"output":2,"cacheRead":0,"cacheWrite":0,"totalTokens":12,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"toolUse","timestamp":2000},"toolResults":[{"role":"toolResult","toolCallId":"c1","toolName":"sandbox_exec","content":[{"type":"text","text":"the user chose to go on without it"}],"details":{"durationMs":5},"isError":true,"timestamp":9000}]}
< {"type":"agent_end","messages":[{"role":"user","content":[{"type":"text","text":"go"}],"timestamp":1000},{"role":"assistant","content":[{"type":"toolCall","id":"c1","name":"sandbox_exec","arguments":{"command":"make"}}],"api":"","provider":"","model":"m1","usage":{"input":10,"output":2,"cacheRead":0,"cacheWrite":0,"totalTokens":12,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"toolUse","timestamp":2000},{"role":"toolResult","toolCallId":"c1","toolName":"sandbox_exec","content":[{"type":"text","text":"the user chose to go on without it"}],"details":{"durationMs":5},"isError":true,"timestamp":9000}]}
