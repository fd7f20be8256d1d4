# A command of the user beside a run does not end what the model is saying, and is a message behind it.
> user_message r1 {"messageId":"m","text":"go"}
> assistant_token r1 {"text":"I am "}
> tool_call - {"source":"user","toolName":"bash","callId":"c1","args":{"command":"date"}}
> status - {"phase":"started","detail":"bash","callId":"c1"}
< {"type":"agent_start"}
< {"type":"turn_start"}
< {"type":"message_start","message":{"role":"user","content":[{"type":"text","text":"go"}],"timestamp":1000}}
< {"type":"message_end","message":{"role":"user","content":[{"type":"text","text":"go"}],"timestamp":1000}}
< {"type":"message_start","message":{"role":"assistant","content":[],"api":"","provider":"","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":2000}}
< {"type":"message_update","message":{"role":"assistant","content":[{"type":"text","text":""}],"api":"","provider":"","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":2000},"assistantMessageEvent":{"type":"text_start","contentIndex":0}}
< {"type":"message_update","message":{"role":"assistant","content":[{"type":"text","text":"I am "}],"api":"","provider":"","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":2000},"assistantMessageEvent":{"type":"text_delta","contentIndex":0,"delta":"I am "}}
< {"type":"tool_execution_start","toolCallId":"c1","toolName":"bash","args":{"command":"date"}}

> assistant_token r1 {"text":"here"}
> tool_output - {"callId":"c1","text":"now [... 9 bytes left out ...]\n"}
> tool_result - {"source":"user","toolName":"bash","callId":"c1","text":"now\n[... 9 bytes left out ...]\n","exitCode":0}
< {"type":"message_update","message":{"role":"assistant","content":[{"type":"text","text":"I am here"}],"api":"","provider":"","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":2000},"assistantMessageEvent":{"type":"text_delta","contentIndex":0,"delta":"here"}}
< {"type":"tool_execution_update","toolCallId":"c1","toolName":"bash","args":{"command":"date"},"partialResult":{"content":[{"type":"text","text":"now [... 9 bytes left out ...]\n"}],"details":{}}}
< {"type":"tool_execution_end","toolCallId":"c1","toolName":"bash","result":{"content":[{"type":"text","text":"now\n[... 9 bytes left out ...]\n"}],"details":{"durationMs":5,"exitCode":0}},"isError":false}

> assistant_token r1 {"text":"."}
> assistant_done r1 {"messageId":"a1"}
> usage r1
> run_complete r1
< {"type":"message_update","message":{"role":"assistant","content":[{"type":"text","text":"I am here."}],"api":"","provider":"","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":2000},"assistantMessageEvent":{"type":"text_delta","contentIndex":0,"delta":"."}}
< {"type":"message_update","message":{"role":"assistant","content":[{"type":"text","text":"I am here."}],"api":"","provider":"","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":2000},"assistantMessageEvent":{"type":"text_end","contentIndex":0,"content":"I am here."}}
< {"type":"message_end","message":{"role":"assistant","content":[{"type":"text","text":"I am here."}],"api":"","provider":"","model":"m1","usage":{"input":10,"output":2,"cacheRead":0,"cacheWrite":0,"totalTokens":12,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":2000}}
< {"type":"turn_end","message":{"role":"assistant","content":[{"type":"text","text":"I am here."}],"api":"","provider":"","model":"m1","usage":{"input":10,"output":2,"cacheRead":0,"cacheWrite":0,"totalTokens":12,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":2000},"toolResults":[]}
< {"type":"message_start","message":{"role":"bashExecution","command":"date","output":"now\n[... 9 bytes left out ...]\n","exitCode":0,"cancelled":false,"truncated":true,"timestamp":7000}}
< {"type":"message_end","message":{"role":"bashExecution","command":"date","output":"now\n[... 9 bytes left out ...]\n","exitCode":0,"cancelled":false,"truncated":true,"timestamp":7000}}
< {"type":"agent_end","messages":[{"role":"user","content":[{"type":"text","text":"go"}],"timestamp":1000},{"role":"assistant","content":[{"type":"text","text":"I am here."}],"api":"","provider":"","model":"m1","usage":{"input":10,"output":2,"cacheRead":0,"cacheWrite":0,"totalTokens":12,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":2000},{"role":"bashExecution","command":"date","output":"now\n[... 9 bytes left out ...]\n","exitCode":0,"cancelled":false,"truncated":true,"timestamp":7000}]}
