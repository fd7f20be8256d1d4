# A question is a yes or no for the user; somebody else may answer it.
> user_message r1 {"messageId":"m","text":"go"}
> usage r1
> tool_call r1 {"toolName":"sandbox_exec","callId":"c1","args":{"command":"rm x"}}
> approval_required r1 {"approvalId":"g1","callId":"c1","summary":"rm x","details":{"risk":"high","command":"rm x"}}
< {"type":"agent_start"}
< {"type":"turn_start"}
< {"type":"message_start","message":{"role":"user","content":[{"type":"text","text":"go"}],"timestamp":1000}}
< {"type":"message_end","message":{"role":"user","content":[{"type":"text","text":"go"}],"timestamp":1000}}
< {"type":"message_start","message":{"role":"assistant","content":[],"api":"","provider":"","model":"m1","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":2000}}
< {"type":"message_update","message":{"role":"assistant","content":[{"type":"toolCall","id":"c1","name":"sandbox_exec","arguments":{"command":"rm x"}}],"api":"","provider":"","model":"m1","usage":{"input":10,"output":2,"cacheRead":0,"cacheWrite":0,"totalTokens":12,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"toolUse","timestamp":2000},"assistantMessageEvent":{"type":"toolcall_start","contentIndex":0}}
< {"type":"message_update","message":{"role":"assistant","content":[{"type":"toolCall","id":"c1","name":"sandbox_exec","arguments":{"command":"rm x"}}],"api":"","provider":"","model":"m1","usage":{"input":10,"output":2,"cacheRead":0,"cacheWrite":0,"totalTokens":12,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"toolUse","timestamp":2000},"assistantMessageEvent":{"type":"toolcall_end","contentIndex":0,"toolCall":{"type":"toolCall","id":"c1","name":"sandbox_exec","arguments":{"command":"rm x"}}}}
< {"type":"message_end","message":{"role":"assistant","content":[{"type":"toolCall","id":"c1","name":"sandbox_exec","arguments":{"command":"rm x"}}],"api":"","provider":"","model":"m1","usage":{"input":10,"output":2,"cacheRead":0,"cacheWrite":0,"totalTokens":12,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"toolUse","timestamp":2000}}
< {"type":"extension_ui_request","requestId":"g1","method":"confirm","title":"Approve command","message":"rm x","kind":"exec","details":{"command":"rm x","risk":"high"},"timeout":60000}

> approval_vote r1 {"approvalId":"g1","by":"push"}
< {"type":"extension_ui_request","requestId":"setStatus-g1-5","method":"setStatus","key":"g1","text":"approved by push; more votes are required"}

> approval_received r1 {"approvalId":"g1","by":"cli"}
> status r1 {"phase":"started","detail":"sandbox_exec","callId":"c1"}
> tool_result r1 {"toolName":"sandbox_exec","callId":"c1","exitCode":0}
< {"type":"extension_ui_request","requestId":"setStatus-g1-6","method":"setStatus","key":"g1","text":"approved by cli"}
< {"type":"tool_execution_start","toolCallId":"c1","toolName":"sandbox_exec","args":{"command":"rm x"}}
< {"type":"tool_execution_end","toolCallId":"c1","toolName":"sandbox_exec","result":{"content":[{"type":"text","text":""}],"details":{"durationMs":5,"exitCode":0}},"isError":false}
< {"type":"message_start","message":{"role":"toolResult","toolCallId":"c1","toolName":"sandbox_exec","content":[{"type":"text","text":""}],"details":{"durationMs":5,"exitCode":0},"isError":false,"timestamp":8000}}
< {"type":"message_end","message":{"role":"toolResult","toolCallId":"c1","toolName":"sandbox_exec","content":[{"type":"text","text":""}],"details":{"durationMs":5,"exitCode":0},"isError":false,"timestamp":8000}}
< {"type":"turn_end","message":{"role":"assistant","content":[{"type":"toolCall","id":"c1","name":"sandbox_exec","arguments":{"command":"rm x"}}],"api":"","provider":"","model":"m1","usage":{"input":10,"output":2,"cacheRead":0,"cacheWrite":0,"totalTokens":12,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"toolUse","timestamp":2000},"toolResults":[{"role":"toolResult","toolCallId":"c1","toolName":"sandbox_exec","content":[{"type":"text","text":""}],"details":{"durationMs":5,"exitCode":0},"isError":false,"timestamp":8000}]}

> run_complete r1
< {"type":"agent_end","messages":[{"role":"user","content":[{"type":"text","text":"go"}],"timestamp":1000},{"role":"assistant","content":[{"type":"toolCall","id":"c1","name":"sandbox_exec","arguments":{"command":"rm x"}}],"api":"","provider":"","model":"m1","usage":{"input":10,"output":2,"cacheRead":0,"cacheWrite":0,"totalTokens":12,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"toolUse","timestamp":2000},{"role":"toolResult","toolCallId":"c1","toolName":"sandbox_exec","content":[{"type":"text","text":""}],"details":{"durationMs":5,"exitCode":0},"isError":false,"timestamp":8000}]}
