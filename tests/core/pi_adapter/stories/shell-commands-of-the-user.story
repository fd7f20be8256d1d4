# Commands of the user are told while they run and are messages at their end; one is kept from the model, one was ended.
> tool_call - {"source":"user","toolName":"bash","callId":"c1","args":{"command":"ls"}}
> status - {"phase":"started","detail":"bash","callId":"c1"}
> tool_output - {"callId":"c1","text":"a\n"}
> tool_result - {"source":"user","toolName":"bash","callId":"c1","text":"a\n","exitCode":0}
< {"type":"tool_execution_start","toolCallId":"c1","toolName":"bash","args":{"command":"ls"}}
< {"type":"tool_execution_update","toolCallId":"c1","toolName":"bash","args":{"command":"ls"},"partialResult":{"content":[{"type":"text","text":"a\n"}],"details":{}}}
< {"type":"tool_execution_end","toolCallId":"c1","toolName":"bash","result":{"content":[{"type":"text","text":"a\n"}],"details":{"durationMs":5,"exitCode":0}},"isError":false}
< {"type":"message_start","message":{"role":"bashExecution","command":"ls","output":"a\n","exitCode":0,"cancelled":false,"truncated":false,"timestamp":4000}}
< {"type":"message_end","message":{"role":"bashExecution","command":"ls","output":"a\n","exitCode":0,"cancelled":false,"truncated":false,"timestamp":4000}}

> tool_call - {"source":"user","toolName":"bash","callId":"c2","args":{"command":"sleep 9"},"excludeFromContext":true}
> status - {"phase":"started","detail":"bash","callId":"c2"}
> tool_result - {"source":"user","toolName":"bash","callId":"c2","status":"cut","isError":true,"excludeFromContext":true,"structuredError":{"type":"cut","retryable":false,"message":"it was ended"}}
< {"type":"tool_execution_start","toolCallId":"c2","toolName":"bash","args":{"command":"sleep 9"}}
< {"type":"tool_execution_end","toolCallId":"c2","toolName":"bash","result":{"content":[{"type":"text","text":"cut: it was ended"}],"details":{"durationMs":5,"fault":{"kind":"cut","message":"it was ended","retryable":false}}},"isError":true}
< {"type":"message_start","message":{"role":"bashExecution","command":"sleep 9","output":"it was ended","exitCode":null,"cancelled":true,"truncated":false,"excludeFromContext":true,"timestamp":7000}}
< {"type":"message_end","message":{"role":"bashExecution","command":"sleep 9","output":"it was ended","exitCode":null,"cancelled":true,"truncated":false,"excludeFromContext":true,"timestamp":7000}}
