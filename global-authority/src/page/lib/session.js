// Who is signed in. The token is in this page's memory and nowhere else: not in a cookie, not in storage.
import { ask, hold, Refused } from "./api.js";
import { byId } from "./dom.js";

export const session = { who: null };
export const isOperator = () => session.who !== null && session.who.role === "operator";

export function showSignIn(why) {
  hold(null);
  session.who = null;
  byId("signin").hidden = false;
  byId("signin-why").textContent = why;
  byId("token").value = "";
  byId("token").focus();
}

// Looks whose token it is; true where it opens this page.
export async function signIn(token) {
  hold(token);
  try {
    session.who = await ask("/v1/whoami");
    byId("signin").hidden = true;
    return true;
  } catch (error) {
    if (error instanceof Refused && error.status === 401) showSignIn("The authority does not know this token, or not any more.");
    else if (error instanceof Refused && error.status === 403) showSignIn("This is a service's or a region's token. The page needs a viewer's or an operator's.");
    else showSignIn(error instanceof Refused ? error.message : "The authority does not answer. Try again in a moment.");
    return false;
  }
}
