# Questions that want an answer are asked as their form says; what a form cannot say it does not say.
> user_message r1 {"messageId":"m","text":"go"}
> tool_call r1 {"toolName":"ask","callId":"c1"}
> approval_required r1 {"approvalId":"g1","callId":"c1","kind":"question","onDenial":"dismiss","form":{"method":"select","title":"Choose","options":["A","B"],"requestId":"x","timeout":1}}
> approval_required r1 {"approvalId":"g2","callId":"c1","kind":"question","form":{"method":"input","placeholder":"name"}}
> approval_required r1 {"approvalId":"g3","callId":"c1","kind":"question","form":{"method":"editor","title":"Edit","prefill":"x\ny"}}
> approval_required r1 {"approvalId":"g4","callId":"c1","kind":"question","form":{"method":"confirm","title":"Sure?","message":"really"}}
> approval_required r1 {"approvalId":"g5","callId":"c1","kind":"question","form":{"method":"interview","title":"Some","questions":[{"id":"q"}]}}
> approval_required r1 {"approvalId":"g6","callId":"c1","kind":"question","form":{"method":"select"}}
> approval_required r1 {"approvalId":"g7","callId":"c1","kind":"question","form":{"method":"dance"}}
< {"type":"agent_start"}
< {"type":"turn_start"}
< {"type":"message_start","message":{"role":"user","content":[{"type":"text","text":"go"}],"timestamp":1000}}
< {"type":"message_end","message":{"role":"user","content":[{"type":"text","text":"go"}],"timestamp":1000}}
< {"type":"message_start","message":{"role":"assistant","content":[],"api":"","provider":"","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"stop","timestamp":2000}}
< {"type":"message_update","message":{"role":"assistant","content":[{"type":"toolCall","id":"c1","name":"ask","arguments":{}}],"api":"","provider":"","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"toolUse","timestamp":2000},"assistantMessageEvent":{"type":"toolcall_start","contentIndex":0}}
< {"type":"message_update","message":{"role":"assistant","content":[{"type":"toolCall","id":"c1","name":"ask","arguments":{}}],"api":"","provider":"","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"toolUse","timestamp":2000},"assistantMessageEvent":{"type":"toolcall_end","contentIndex":0,"toolCall":{"type":"toolCall","id":"c1","name":"ask","arguments":{}}}}
< {"type":"message_end","message":{"role":"assistant","content":[{"type":"toolCall","id":"c1","name":"ask","arguments":{}}],"api":"","provider":"","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"toolUse","timestamp":2000}}
< {"type":"extension_ui_request","requestId":"g1","method":"select","title":"Choose","options":["A","B"],"kind":"question","details":{"risk":"low"},"timeout":60000}
< {"type":"extension_ui_request","requestId":"g2","method":"input","title":"Approve command","placeholder":"name","kind":"question","details":{"risk":"low"},"timeout":60000}
< {"type":"extension_ui_request","requestId":"g3","method":"editor","title":"Edit","prefill":"x\ny","kind":"question","details":{"risk":"low"},"timeout":60000}
< {"type":"extension_ui_request","requestId":"g4","method":"confirm","title":"Sure?","message":"really","kind":"question","details":{"risk":"low"},"timeout":60000}
< {"type":"extension_ui_request","requestId":"g5","method":"interview","title":"Some","questions":[{"id":"q"}],"kind":"question","details":{"risk":"low"},"timeout":60000}
< {"type":"extension_ui_request","requestId":"g6","method":"select","title":"Approve command","options":[],"kind":"question","details":{"risk":"low"},"timeout":60000}
< {"type":"extension_ui_request","requestId":"g7","method":"confirm","title":"Approve command","message":"ls","kind":"question","details":{"risk":"low"},"timeout":60000}

> approval_received r1 {"approvalId":"g1","decision":"approve","by":"push","answer":"B"}
> tool_result r1 {"toolName":"ask","callId":"c1","text":"B"}
< {"type":"extension_ui_request","requestId":"setStatus-g1-10","method":"setStatus","key":"g1","text":"approved by push"}
< {"type":"tool_execution_start","toolCallId":"c1","toolName":"ask","args":{}}
< {"type":"tool_execution_end","toolCallId":"c1","toolName":"ask","result":{"content":[{"type":"text","text":"B"}],"details":{"durationMs":5}},"isError":false}
< {"type":"message_start","message":{"role":"toolResult","toolCallId":"c1","toolName":"ask","content":[{"type":"text","text":"B"}],"details":{"durationMs":5},"isError":false,"timestamp":11000}}
< {"type":"message_end","message":{"role":"toolResult","toolCallId":"c1","toolName":"ask","content":[{"type":"text","text":"B"}],"details":{"durationMs":5},"isError":false,"timestamp":11000}}
< {"type":"turn_end","message":{"role":"assistant","content":[{"type":"toolCall","id":"c1","name":"ask","arguments":{}}],"api":"","provider":"","model":"","usage":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"totalTokens":0,"cost":{"input":0,"output":0,"cacheRead":0,"cacheWrite":0,"total":0.0}},"stopReason":"toolUse","timestamp":2000},"toolResults":[{"role":"toolResult","toolCallId":"c1","toolName":"ask","content":[{"type":"text","text":"B"}],"details":{"durationMs":5},"isError":false,"timestamp":11000}]}
